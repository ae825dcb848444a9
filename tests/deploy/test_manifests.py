"""The manifests fit together: with each other, with the command line, and with what is served."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest

from bayplan import __version__
from bayplan.cli.main import application
from bayplan.config import build_profiles, load_config
from bayplan.deschedule.descheduler import Descheduler
from bayplan.deschedule.policy import parse_policy
from bayplan.process.command_line import FlagValues, parse

from .manifests import CONFIG, DEPLOY, OPTIONAL, REPLACE, SECOND, Manifest, granted, objects, pod_spec, the

ALL = [
    pytest.param(item, id=f"{item['kind']} {item.get('metadata', {}).get('name', '')}")
    for item in objects(SECOND, OPTIONAL, REPLACE)
]
RUNNING = [pytest.param("Deployment", SECOND, id="second"), pytest.param("Pod", REPLACE, id="replacing")]
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def container(kind: str, place: Path) -> Manifest:
    (found,) = pod_spec(the(kind, place))["containers"]
    assert isinstance(found, dict)
    return found


def flags(kind: str, place: Path) -> FlagValues:
    return parse(container(kind, place)["args"], "bayplan run")


def test_kustomization_has_every_file() -> None:
    """It makes the ConfigMap itself."""
    there = {file.name for file in SECOND.glob("*.yaml")} - {"config-map.yaml"}
    kustomization = the("Kustomization", SECOND / "Kustomization")
    (config,) = kustomization["configMapGenerator"]
    assert {*kustomization["resources"]} == there
    assert [SECOND / file for file in config["files"]] == [CONFIG]


def test_the_configuration_is_the_same_without_kustomize() -> None:
    assert the("ConfigMap", SECOND)["data"] == {"scheduler.yaml": CONFIG.read_text()}


@pytest.mark.parametrize("item", ALL)
def test_every_object_is_one(item: Manifest) -> None:
    assert item["metadata"]["name"]
    assert re.fullmatch(r"v1|[a-z.0-9]+/v[0-9a-z]+", item["apiVersion"])


def test_all_that_selects_the_pods_does() -> None:
    template = the("Deployment", SECOND)["spec"]["template"]
    labels = template["metadata"]["labels"]
    (spread,) = template["spec"]["topologySpreadConstraints"]
    selectors = [
        the("Deployment", SECOND)["spec"]["selector"]["matchLabels"],
        the("PodDisruptionBudget", SECOND)["spec"]["selector"]["matchLabels"],
        the("Service", SECOND)["spec"]["selector"],
        spread["labelSelector"]["matchLabels"],
    ]
    assert [selector for selector in selectors if not selector.items() <= labels.items()] == []
    monitored = the("ServiceMonitor", OPTIONAL)["spec"]["selector"]["matchLabels"]
    assert monitored.items() <= the("Service", SECOND)["metadata"]["labels"].items()


def test_roles_are_bound_to_the_account_of_the_pods() -> None:
    account = the("ServiceAccount", SECOND)["metadata"]
    assert pod_spec(the("Deployment", SECOND))["serviceAccountName"] == account["name"]
    bindings = [item for item in objects(SECOND, OPTIONAL) if item["kind"].endswith("RoleBinding")]
    roles = {
        (item["kind"], item["metadata"]["name"])
        for item in objects(SECOND, OPTIONAL)
        if item["kind"].endswith("Role")
    }
    # yunikorn-rbac.yaml has two: for a ConfigMap, and for a kind without namespaces.
    assert len(bindings) == 3 + len(list(OPTIONAL.glob("*-rbac.yaml")))
    for binding in bindings:
        (subject,) = binding["subjects"]
        assert (subject["kind"], subject["name"], subject["namespace"]) == (
            "ServiceAccount",
            account["name"],
            account["namespace"],
        )
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) in roles


def test_the_configuration_is_one_that_a_scheduler_can_run_with() -> None:
    """And its lease is the one that the role is about."""
    (config_map,) = the("Kustomization", SECOND / "Kustomization")["configMapGenerator"]
    path = Path(flags("Deployment", SECOND)["config"])
    spec = pod_spec(the("Deployment", SECOND))
    (volume,), (mount,) = spec["volumes"], container("Deployment", SECOND)["volumeMounts"]
    assert (volume["name"], volume["configMap"]["name"]) == (mount["name"], config_map["name"])
    assert the("ConfigMap", SECOND)["metadata"]["name"] == config_map["name"]
    assert (str(path.parent), path.name) == (mount["mountPath"], CONFIG.name)
    config = load_config(CONFIG)
    (plan,) = build_profiles(config)
    election = config.leader_election
    assert plan.scheduler_name == "bayplan"
    assert election.leader_elect
    leases = {item.name for item in granted(SECOND) if (item.resource, item.verb) == ("leases", "update")}
    assert (leases, election.resource_namespace) == ({election.resource_name}, "kube-system")


@pytest.mark.parametrize(("kind", "place"), RUNNING)
def test_ports_are_those_that_are_served(kind: str, place: Path) -> None:
    (port,) = container(kind, place)["ports"]
    assert port["containerPort"] == flags(kind, place)["secure-port"]
    for probe in PROBES:
        probed = container(kind, place)[probe]["httpGet"]
        assert (probed["port"], probed["scheme"]) == (port["name"], "HTTPS")
    if place is SECOND:
        (served,) = the("Service", SECOND)["spec"]["ports"]
        assert served["targetPort"] == port["name"]
        assert {end["port"] for end in the("ServiceMonitor", OPTIONAL)["spec"]["endpoints"]} == {
            served["name"]
        }


@pytest.mark.parametrize(("kind", "place"), RUNNING)
def test_probes_need_no_token(kind: str, place: Path) -> None:
    open_to_all = flags(kind, place)["authorization-always-allow-paths"]
    paths = {container(kind, place)[probe]["httpGet"]["path"] for probe in PROBES}
    assert paths == {"/livez", "/readyz"}
    assert paths <= set(open_to_all)


def test_the_replacement_has_the_flags_that_kubeadm_gives() -> None:
    given = flags("Pod", REPLACE)
    (mount,) = container("Pod", REPLACE)["volumeMounts"]
    names = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
    assert {given[name] for name in names} == {mount["mountPath"]}
    assert given["leader-elect-resource-name"] == "kube-scheduler"


@pytest.mark.parametrize(("kind", "place"), RUNNING)
def test_images_are_of_this_version(kind: str, place: Path) -> None:
    assert container(kind, place)["image"] == f"bayplan:{__version__}"


def test_pods_of_the_deployment_have_no_rights_on_their_node() -> None:
    spec = pod_spec(the("Deployment", SECOND))
    allowed: dict[str, Any] = container("Deployment", SECOND)["securityContext"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert allowed["readOnlyRootFilesystem"]
    assert not allowed["allowPrivilegeEscalation"]
    assert allowed["capabilities"] == {"drop": ["ALL"]}


def test_the_image_runs_a_scheduler_and_not_as_root() -> None:
    """Only its instructions: building it takes a container engine."""
    lines = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    steps = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    last = max(i for i, (word, _) in enumerate(steps) if word == "FROM")
    final = dict(steps[last:])
    assert int(final["USER"].split(":")[0]) > 0
    assert final["ENTRYPOINT"] == '["bayplan", "run"]'
    assert [base for word, base in steps if word == "FROM" and "/" in shlex.split(base)[0]] == []
    copied = {source for word, rest in steps[:last] if word == "COPY" for source in rest.split()[:-1]}
    assert [source for source in copied if not (DEPLOY.parent / source).exists()] == []


BESIDE = [pytest.param("descheduler", id="descheduler"), pytest.param("estimator", id="estimator")]


@pytest.mark.parametrize("place", BESIDE)
def test_what_runs_beside_the_scheduler_can_start(place: str) -> None:
    """Its command line is one, its files are mounted, and all that selects its pods does."""
    folder = DEPLOY / place
    deployment = the("Deployment", folder)
    template = deployment["spec"]["template"]
    labels = template["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    assert [
        item for item in objects(folder) if item["kind"] == "Service" and item["spec"]["selector"] != labels
    ] == []
    made = container("Deployment", folder)
    context = _context(made["command"], made["args"])
    files = [value for value in context.params.values() if str(value).startswith("/etc/")]
    mounts = {mount["mountPath"]: mount["name"] for mount in made["volumeMounts"]}
    assert {str(Path(file).parent) for file in files} == mounts.keys()
    assert {volume["name"] for volume in template["spec"]["volumes"]} == {*mounts.values()}
    assert context.params["port"] in {port["containerPort"] for port in made["ports"]}


def _context(command: list[str], args: list[str]) -> click.Context:
    """The command line as click parses it."""
    group: Any = application
    context = click.Context(group)
    for name in command[1:-1]:
        group = group.get_command(context, name)
    found: click.Context = group.get_command(context, command[-1]).make_context(command[-1], [*args])
    return found


def test_the_descheduler_has_its_roles_and_a_policy() -> None:
    folder = DEPLOY / "descheduler"
    roles = {
        (item["kind"], item["metadata"]["name"])
        for item in objects(OPTIONAL / "descheduler.yaml")
        if item["kind"].endswith("Role")
    }
    bindings = [item for item in objects(folder) if item["kind"].endswith("RoleBinding")]
    assert {(item["roleRef"]["kind"], item["roleRef"]["name"]) for item in bindings} == roles
    account = the("ServiceAccount", folder)["metadata"]
    assert pod_spec(the("Deployment", folder))["serviceAccountName"] == account["name"]
    for item in bindings:
        assert [(one["name"], one["namespace"]) for one in item["subjects"]] == [
            (account["name"], account["namespace"])
        ]
    policy = parse_policy(the("ConfigMap", folder)["data"]["policy.yaml"], "policy.yaml", lambda _: None)
    assert Descheduler(policy).profiles
    assert policy.warnings == ()
