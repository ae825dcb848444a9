"""Comparing configurations: figures, differences, seeds, processes, Dask."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
import yaml

from bayplan.answers.whatif import Cluster
from bayplan.answers.whatif.comparison import (
    Comparison,
    Estimate,
    Variant,
    Workload,
    compare,
    estimate,
    from_scratch,
)
from bayplan.api.decode import parse_objects
from bayplan.api.defaults import with_defaults
from bayplan.api.kinds import KINDS
from bayplan.api.meta import Object, OwnerReference
from bayplan.cli.main import main
from bayplan.config import default_config, parse_config
from bayplan.errors import InputError
from bayplan.testing.builders import make_node, make_pod

ROOT = Path(__file__).parents[3]
CLUSTER = str(ROOT / "examples/whatif/cluster.yaml")
PACK = (ROOT / "examples/pack.yaml").read_text()


def objects() -> tuple[Object, ...]:
    return (
        *(make_node(f"n{i}", cpu="4", memory="8Gi") for i in range(4)),
        *(make_pod(f"p{i}", cpu="500m", memory="1Gi") for i in range(8)),
    )


def variants() -> list[Variant]:
    return [Variant("default", default_config()), Variant("pack", parse_config(PACK))]


def mean(found: Comparison, figure: str) -> list[float]:
    return [round(one.mean, 4) for one in found.figures[figure]]


def test_packing_uses_fewer_nodes_and_is_less_balanced() -> None:
    found = compare(Workload(objects()), variants(), jobs=1)
    assert mean(found, "scheduled") == [8, 8]
    assert mean(found, "nodes used") == [4, 1]
    assert mean(found, "utilisation: cpu") == [0.25, 0.25]
    assert mean(found, "imbalance: cpu")[0] == 0
    assert mean(found, "imbalance: cpu")[1] > 0.4
    assert len(found.differences) >= 6
    assert all(len(set(nodes)) == 2 for nodes in found.differences.values())


def test_processes_give_the_same_as_one_process() -> None:
    workload = Workload(objects(), shuffle=True)
    assert compare(workload, variants(), seeds=2, jobs=2) == compare(workload, variants(), seeds=2, jobs=1)


def test_without_chance_seeds_make_no_difference() -> None:
    found = compare(Workload(objects()), variants(), seeds=3, jobs=1)
    assert all(one.margin is None for estimates in found.figures.values() for one in estimates)


def test_an_estimate_has_a_confidence_interval() -> None:
    assert estimate([2.0, 2.0]) == Estimate(2.0)
    found = estimate([1.0, 2.0, 3.0])
    assert found.mean == 2.0
    assert found.margin == pytest.approx(4.303 / 3**0.5)
    many = estimate([0.0, 1.0] * 50)
    assert many.margin is not None
    assert many.margin == pytest.approx(1.96 * (25 / 99) ** 0.5 / 10, rel=0.01)


def test_waiting_counts_the_grace_period_of_victims() -> None:
    low = make_pod("low", cpu="4", node="n0", priority=0)
    high = make_pod("high", cpu="2", priority=10)
    found = compare(Workload((make_node("n0", cpu="4"), low, high)), variants()[:1], jobs=1)
    assert mean(found, "preempted") == [1]
    assert mean(found, "waiting")[0] >= 30


def test_from_scratch_leaves_pods_that_belong_to_nodes() -> None:
    from tests.answers.whatif.test_cluster import owned

    agent = owned(make_pod("agent", node="n0"), kind="DaemonSet")
    freed = list(from_scratch([make_node("n0"), agent, make_pod("p", node="n0")]))
    assert [item.spec.node_name for item in freed if hasattr(item.spec, "node_name")] == ["n0", ""]  # type: ignore[attr-defined]


def test_only_pods_of_these_schedulers_count_as_not_scheduled() -> None:
    """Victims of preemption have their own figure."""
    low = make_pod("low", cpu="4", node="n0", priority=0)
    pods = (low, make_pod("high", cpu="2", priority=10), make_pod("other", scheduler_name="other"))
    found = compare(Workload((make_node("n0", cpu="4"), *pods)), variants()[:1], jobs=1)
    assert (mean(found, "scheduled"), mean(found, "not scheduled"), mean(found, "preempted")) == (
        [1],
        [0],
        [1],
    )
    assert (found.pods, mean(found, "skipped")) == (2, [1])


def test_the_pods_of_a_workload_add_up() -> None:
    """Victims are created again, and are no pods of the workload."""
    owner = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="low", uid="u", controller=True)
    low = make_pod("low", cpu="4", node="n0", priority=0, owner=owner)
    pods = (low, make_pod("high", cpu="2", priority=10), make_pod("big", cpu="9"))
    found = compare(Workload((make_node("n0", cpu="4"), *pods)), variants()[:1], jobs=1)
    assert (found.pods, mean(found, "scheduled"), mean(found, "not scheduled")) == (2, [1], [1])


def test_trials_are_sent_to_dask(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    class Client:
        def __init__(self, address: str) -> None:
            calls.append(address)

        def __enter__(self) -> Client:
            return self

        def __exit__(self, *error: object) -> None:
            calls.append("closed")

        def scatter(self, item: Any, broadcast: bool) -> Any:
            return item

        def submit(self, function: Any, *args: Any, pure: bool) -> Any:
            assert not pure
            return function(*args)

        def gather(self, futures: list[Any]) -> list[Any]:
            return futures

    module = ModuleType("distributed")
    module.Client = Client  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "distributed", module)
    found = compare(Workload(objects()), variants(), dask="tcp://10.0.0.1:8786")
    assert calls == ["tcp://10.0.0.1:8786", "closed"]
    assert found == compare(Workload(objects()), variants(), jobs=1)


def test_dask_that_is_not_installed_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"bayplan\[dask\]"):
        compare(Workload(objects()), variants(), dask="tcp://x:1")


def test_the_command_compares_versions_and_files(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "-f", CLUSTER, "default@1.37", str(ROOT / "examples/pack.yaml"), "--jobs", "1"]
    assert main([*words, "-o", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["variants"] == ["default@1.37", str(ROOT / "examples/pack.yaml")]
    assert answer["figures"]["scheduled"] == [{"mean": 1.0, "margin": None}] * 2


WEB = """\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  replicas: 2
  strategy: {{rollingUpdate: {{maxSurge: 1, maxUnavailable: 0}}}}
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec: {{containers: [{{name: c, image: "i:{image}", resources: {{requests: {{cpu: {cpu}}}}}}}]}}
"""
NODE = """\
apiVersion: v1
kind: Node
metadata: {{name: n{number}}}
status: {{allocatable: {{cpu: "4", memory: 8Gi, pods: "110"}}}}
"""
HPA = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec: {maxReplicas: 5, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
"""


def rolled_out(directory: Path, cpu: int) -> list[str]:
    """Arguments for a cluster of two nodes where `web` runs with 1 CPU, and its next version."""
    cluster = Cluster.from_objects(
        with_defaults(parse_objects("---\n".join(NODE.format(number=i) for i in range(2)).encode(), "nodes"))
    )
    cluster.apply(yaml.safe_load(WEB.format(image=1, cpu=1)))
    assert cluster.schedule().fits
    items = [
        {
            "apiVersion": KINDS.of(type(one)).api_version,
            "kind": type(one).__name__,
            **msgspec.to_builtins(one),
        }
        for one in cluster.objects
    ]
    (directory / "cluster.json").write_text(
        json.dumps({"kind": "List", "apiVersion": "v1", "items": items}, default=str)
    )
    (directory / "web.yaml").write_text(WEB.format(image=2, cpu=cpu))
    return ["compare", "-f", str(directory / "cluster.json"), "--add", str(directory / "web.yaml")]


def test_every_configuration_plays_the_rollouts_of_a_manifest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = rolled_out(tmp_path, cpu=1)
    assert main([*words, "default", str(ROOT / "examples/pack.yaml"), "--jobs", "1", "-o", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["applied"] == [{"kind": "Deployment", "object": "default/web", "change": "changed"}]
    assert [one["complete"] for (one,) in answer["rollouts"]] == [True, True]
    assert [one["mean"] for one in answer["figures"]["scheduled"]] == [2, 2]


def test_a_rollout_that_stalls_is_shown_once_if_all_configurations_agree(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*rolled_out(tmp_path, cpu=4), str(ROOT / "examples/pack.yaml"), "--jobs", "1"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("Deployment default/web: the rollout stalls at 0 of 2") == 1
    assert "default/web changed" in shown


def test_versions_decide_the_first_pods_of_a_rollout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*rolled_out(tmp_path, cpu=2), "--emulated-version", "1.36", "--emulated-version", "1.37"]
    assert main(words) == 0
    assert "1 pending pod, 0 decided differently" in capsys.readouterr().out


def test_what_is_not_judged_is_status_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = rolled_out(tmp_path, cpu=1)
    (tmp_path / "web.yaml").write_text(HPA)
    assert main([*words, "default", "default@1.36", "--jobs", "1"]) == 3
    assert "left out: HorizontalPodAutoscaler default/web" in capsys.readouterr().out
    assert main([*words, "--emulated-version", "1.36", "--emulated-version", "1.37"]) == 3


def test_one_configuration_is_compared_with_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "-f", CLUSTER, str(ROOT / "examples/pack.yaml"), "--jobs", "1"]) == 0
    assert "default" in capsys.readouterr().out


@pytest.mark.parametrize("config", ["nowhere.yaml", "default@1.2"])
def test_bad_input_is_status_2(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "-f", CLUSTER, config]) == 2
    assert capsys.readouterr().err.startswith("error:")
