"""The pods that an upgrade would decide differently, each with the rules behind it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from bayplan.answers.explain.upgrade import UpgradeReport, compare_releases
from bayplan.answers.sources.files import read_scenario
from bayplan.answers.sources.loading import SchedulerSettings, as_release
from bayplan.api.release import TITLES, rule_changes
from bayplan.api.releases import V1_36, V1_37
from bayplan.cli.main import main
from tests.recorded.compare import read_lines

ROOT = Path(__file__).parents[3]
VECTORS = ROOT / "conformance/vectors/v1.37"

NOT_DECIDING = {
    "minor",
    "patch_version",
    "features",
    "gates",
    "gated_plugins",
    "registry",
    "has_pod_group_post_filter",
    "anti_affinity_hint_any_term",
    "in_memory_preemption_activates",
    "new_kinds",
    "server",
    "devices.claim_delete_requeues",
    "devices.reserve_requires_claim",
    "devices.in_flight_until_bound",
    "metrics",
}
"""Fields of a release that change no decision about a pod on a given cluster, apart from the queue's."""


def compared(scenario: dict[str, Any]) -> UpgradeReport:
    read = read_scenario(scenario)
    return compare_releases(partial(as_release, read, SchedulerSettings()), V1_36, V1_37)


def scenarios(category: str, count: int) -> Iterator[dict[str, Any]]:
    """The first scenarios without a configuration: some configurations are only valid as v1.37."""
    found = (line["scenario"] for line in read_lines(VECTORS / f"{category}.jsonl.gz"))
    return islice((scenario for scenario in found if "config" not in scenario), count)


def test_every_rule_has_a_title() -> None:
    """A new field of a release has to be either a rule with a title or known not to decide."""
    names = {field.name for field in fields(V1_37)} - {"queue", "devices"}
    names |= {f"devices.{field.name}" for field in fields(V1_37.devices)}
    differing = {name for name in names if _value(V1_36, name) != _value(V1_37, name)}
    assert differing - TITLES.keys() == {name for name in differing if name in NOT_DECIDING}
    assert {rule.name for rule in rule_changes(V1_36, V1_37) if not rule.gate} <= TITLES.keys()


def _value(release: object, name: str) -> object:
    for part in name.split("."):
        release = getattr(release, part)
    return release


def test_all_rules_together_make_the_newer_release() -> None:
    """Each rule changes something, and no rule is lost on the way."""
    release = V1_36
    for rule in rule_changes(V1_36, V1_37):
        changed = rule.applied(release, V1_37)
        assert changed != release
        release = changed
    assert list(rule_changes(release, V1_37)) == []


@pytest.mark.parametrize(
    ("category", "rule"),
    [
        ("storage-scoring", "gate StorageCapacityScoring"),
        ("volume-limits", "gate VolumeLimitScaling"),
        ("resize", "accounting"),
        ("namespace-selector", "namespace_selectors_by_name"),
        ("image-volumes", "image_volumes_raise_limit"),
        ("gated-nominated", "queue.nominates_gated_pods"),
        ("preemption", "preemption_success"),
    ],
)
def test_differences_are_attributed(category: str, rule: str) -> None:
    named: set[str] = set()
    for scenario in scenarios(category, 10):
        found = compared(scenario).differences
        assert all(difference.kinds for difference in found)
        named.update(cause.name for difference in found for cause in difference.rules)
        if rule in named:
            return
    pytest.fail(f"{rule} is not among {sorted(named)}")


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(ROOT / "examples/cluster.yaml")
    options = ["--emulated-version", "1.37", "--compare-version", "1.36"]
    assert main(["decide", file, *options, "--pod", "ml/huge-1", "--output", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["from"], report["to"], report["pods"]) == ("1.36", "1.37", 1)
    (difference,) = report["differences"]
    assert difference["changes"] == ["worded"]
    assert [rule["name"] for rule in difference["rules"]] == ["devices.post_filter_without_message"]
    assert main(["decide", file, *options, "--output", "table"]) == 0
    assert "by: a preemption that finds victims has a message" in capsys.readouterr().out


def test_a_version_is_not_compared_with_itself(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(ROOT / "examples/cluster.yaml")
    assert main(["decide", file, "--emulated-version", "1.36", "--compare-version", "1.36"]) == 2
    assert "is decided as 1.36" in capsys.readouterr().err


def _raw(kind: str, name: str, namespace: str = "", **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **fields.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **fields}


def _pod(name: str, namespace: str = "default", cpu: str = "1", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "c", "resources": {"requests": {"cpu": cpu}}}
    labels = {"labels": {"app": name}}
    return _raw("Pod", name, namespace, metadata=labels, spec={"containers": [container], **spec})


IMAGE = "registry.example/model:1"
APART = {
    "topologyKey": "kubernetes.io/hostname",
    "labelSelector": {"matchLabels": {"app": "guarded"}},
    "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["own"]}]},
}
CLUSTER = [
    _raw("Namespace", "own", metadata={"labels": {"team": "own"}}),
    _raw(
        "Node",
        "a",
        metadata={"labels": {"kubernetes.io/hostname": "a"}},
        status={
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"},
            "images": [{"names": [IMAGE], "sizeBytes": 1000 << 20}],
        },
    ),
    _pod("guarded", "own", nodeName="a"),
    _pod("apart", affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [APART]}}),
    _pod("model", volumes=[{"name": "m", "image": {"reference": IMAGE}}]),
    _pod("huge", cpu="64"),
    _pod("same"),
]


@pytest.fixture
def cluster_file(tmp_path: Path) -> str:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": CLUSTER}))
    return str(path)


VERSIONS = ["--emulated-version", "1.36", "--emulated-version", "1.37"]


@pytest.mark.parametrize("versions", [VERSIONS, [*VERSIONS[2:], *VERSIONS[:2]]], ids=["up", "any order"])
def test_compare_with_two_versions(
    cluster_file: str, versions: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *versions, "-f", cluster_file, "-o", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["kind"], report["from"], report["to"], report["pods"]) == (
        "UpgradeReport",
        "1.36",
        "1.37",
        4,
    )
    found = {one["pod"].removeprefix("default/"): one for one in report["differences"]}
    assert {pod: (one["changes"], [rule["name"] for rule in one["rules"]]) for pod, one in found.items()} == {
        "apart": (["placed", "rejected", "worded"], ["namespace_selectors_by_name"]),
        "model": (["scored"], ["image_volumes_raise_limit"]),
        "huge": (["worded"], ["devices.post_filter_without_message"]),
    }
    assert (found["apart"]["before"]["node"], found["apart"]["after"]["node"]) == (None, "a")


def test_compare_shows_other_decisions_first(cluster_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *VERSIONS, "-f", cluster_file]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{cluster_file}: Kubernetes 1.36 → 1.37: 4 pending pods, 3 decided differently"
    assert lines[1] == "  placed: 1, rejected: 1, scored: 1, worded: 2"
    pods = [line for line in lines if line.startswith("default/")]
    assert pods == [
        "default/apart: placed, rejected, worded",
        "default/model: scored",
        "default/huge: worded",
    ]
    rule = (
        "namespaceSelectors of incoming pods select only namespaces they match (namespace_selectors_by_name)"
    )
    assert f"  by: {rule}" in lines


def test_compare_with_pods_that_are_not_there_yet(
    cluster_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = tmp_path / "more.json"
    more.write_text(json.dumps(_pod("more", cpu="65")))
    assert main(["compare", *VERSIONS, "-f", cluster_file, "--add", str(more), "-o", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["pods"] == 5
    assert "default/more" in {one["pod"] for one in report["differences"]}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "Name a CONFIG, or two versions"),
        (["--emulated-version", "1.36"], "Name a CONFIG, or two versions"),
        ([*VERSIONS, "default"], "are compared without CONFIG"),
        ([*VERSIONS, "--from-scratch"], "are compared without CONFIG"),
        ([*VERSIONS, *VERSIONS], "give two different versions"),
        ([*VERSIONS[:2], *VERSIONS[:2]], "give two different versions"),
    ],
)
def test_what_cannot_be_compared(
    words: list[str], problem: str, cluster_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *words, "-f", cluster_file]) == 2
    assert problem in capsys.readouterr().err
