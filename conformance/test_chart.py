"""The Helm chart, rendered by helm: the objects of deploy/, and objects that the real API server accepts."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from bayplan.process.otlp import HEADERS
from bayplan.process.tracing import TracingConfiguration, load_tracing
from conformance.harness.control_plane import ControlPlane
from conformance.harness.programs import obtain_helm
from tests.deploy.manifests import DEPLOY, SECOND, objects

CHART = DEPLOY / "chart"
EVERYTHING = (
    "--set=networkPolicy.enabled=true",
    "--set=rbac.plugins={coscheduling,load-aware}",
    "--set=tolerations[0].operator=Exists",
    "--set=nodeSelector.pool=control",
    "--set=podAnnotations.team=platform",
    "--set=tracing.enabled=true,tracing.endpoint=otel:4317,tracing.headersSecret.name=otlp",
)
"""Values of optional parts whose kinds a plain API server has."""


@pytest.fixture(scope="module")
def helm() -> Path:
    return obtain_helm()


def rendered(helm: Path, *values: str, namespace: str = "kube-system") -> str:
    command = [str(helm), "template", "bayplan", str(CHART), "--namespace", namespace, *values]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def by_name(items: list[dict[str, Any]]) -> dict[tuple[str, str, str], dict[str, Any]]:
    return {
        (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]): item
        for item in items
    }


def test_default_values_give_the_manifests_of_deploy(helm: Path) -> None:
    """But for the checksum by which a changed configuration rolls out; kustomize uses a hash instead."""
    found = by_name([item for item in yaml.safe_load_all(rendered(helm)) if item])
    deployment = found["Deployment", "kube-system", "bayplan"]
    checksum = deployment["spec"]["template"]["metadata"].pop("annotations")
    assert list(checksum) == ["checksum/configuration"]
    assert found == by_name(objects(SECOND))


@pytest.mark.parametrize(
    ("part", "files", "namespace"),
    [
        ("descheduler", ("optional/descheduler.yaml", "descheduler/descheduler.yaml"), "kube-system"),
        ("estimator", ("estimator/estimator.yaml",), "karmada-system"),
    ],
)
def test_optional_parts_are_the_manifests_of_deploy(
    helm: Path, part: str, files: tuple[str, ...], namespace: str
) -> None:
    def items(*values: str) -> list[dict[str, Any]]:
        text = rendered(helm, *values, namespace=namespace)
        return [item for item in yaml.safe_load_all(text) if item]

    without = by_name(items())
    found = by_name(items(f"--set={part}.enabled=true"))
    own = {key: item for key, item in found.items() if key not in without}
    assert own == by_name(
        [item for file in files for item in yaml.safe_load_all((DEPLOY / file).read_text())]
    )


def test_the_estimator_has_a_service_for_each_member(helm: Path) -> None:
    text = rendered(helm, "--set=estimator.enabled=true", "--set=estimator.members={a,b}")
    names = [item["metadata"]["name"] for item in yaml.safe_load_all(text) if item]
    assert [one for one in names if one.startswith("karmada-")] == [
        "karmada-scheduler-estimator-a",
        "karmada-scheduler-estimator-b",
    ]
    assert text.count("- --context=") == 2


def test_replacement_uses_the_lease_of_kube_scheduler(helm: Path) -> None:
    found = by_name([item for item in yaml.safe_load_all(rendered(helm, "--set=mode=replacement")) if item])
    config = yaml.safe_load(found["ConfigMap", "kube-system", "bayplan"]["data"]["scheduler.yaml"])
    (role,) = (item for (kind, _, _), item in found.items() if kind == "Role")
    assert config["leaderElection"]["resourceName"] == "kube-scheduler"
    assert config["profiles"] == [{"schedulerName": "default-scheduler"}]
    assert ["kube-scheduler"] in [rule.get("resourceNames") for rule in role["rules"]]


def test_the_tracing_configuration_is_one_that_bayplan_reads(helm: Path, tmp_path: Path) -> None:
    text = rendered(
        helm, "--set=tracing.enabled=true,tracing.endpoint=otel:4317,tracing.headersSecret.name=otlp"
    )
    items = {item["kind"]: item for item in yaml.safe_load_all(text) if item}
    file = tmp_path / "tracing.yaml"
    file.write_text(items["ConfigMap"]["data"]["tracing.yaml"])
    assert load_tracing(str(file)) == TracingConfiguration("otel:4317", 10_000)
    (container,) = items["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert "--tracing-config-file=/etc/bayplan/tracing.yaml" in container["args"]
    (variable,) = container["env"]
    assert variable["name"] == HEADERS
    assert variable["valueFrom"]["secretKeyRef"] == {"name": "otlp", "key": "headers"}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        pytest.param("--set=mode=third", "mode", id="unknown mode"),
        pytest.param("--set=replica=3", "replica", id="misspelled value"),
        pytest.param("--set=replicas=0", "replicas", id="no replicas"),
        pytest.param("--set=rbac.plugins={nosuch}", "rbac", id="unknown plugin"),
        pytest.param("--set=podMonitor.enabled=true", "podMonitor.tokenSecret.name", id="no token"),
        pytest.param("--set=tracing.enabled=true", "tracing.endpoint", id="no receiver of traces"),
    ],
)
def test_wrong_values_are_named(helm: Path, values: str, said: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        rendered(helm, values)
    assert said in caught.value.stderr


@pytest.mark.parametrize(
    ("values", "namespace"),
    [
        pytest.param(EVERYTHING, "kube-system", id="every part"),
        pytest.param(("--set=mode=replacement",), "kube-system", id="replacement"),
        pytest.param((), "default", id="another namespace"),
    ],
)
def test_the_real_api_server_accepts_it(
    helm: Path, plane: ControlPlane, tmp_path: Path, values: tuple[str, ...], namespace: str
) -> None:
    file = tmp_path / "rendered.yaml"
    file.write_text(rendered(helm, *values, namespace=namespace))
    output = plane.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", str(file))
    assert [line for line in output.splitlines() if not line.endswith("created (server dry run)")] == []
