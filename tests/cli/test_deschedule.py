"""`bayplan deschedule`: plans from files, and what it rejects."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands import bayplan

ROOT = Path(__file__).parents[2]
CLUSTER = str(ROOT / "examples/deschedule/cluster.yaml")
POLICY = str(ROOT / "examples/deschedule/policy.yaml")


def test_a_plan_as_json_has_moves_and_reasons() -> None:
    ended = bayplan("deschedule", "plan", "-f", CLUSTER, "--policy", POLICY, "-o", "json")
    plan = json.loads(ended.stdout)
    assert (ended.status, plan["kind"], plan["decision"]) == (1, "DeschedulePlan", "scheduler")
    assert [(one["pod"], one["from"], one["to"]) for one in plan["moves"]] == [
        ("shop/web-1", "node-1", "node-3"),
        ("shop/batch-2", "node-3", "node-4"),
    ]
    assert plan["upstreamEvictions"] == 5
    assert {one["pod"] for one in plan["kept"] if one["upstream"]} == {
        "shop/web-2",
        "shop/gateway-1",
        "shop/gateway-2",
    }


def test_upstream_s_decision_has_no_targets() -> None:
    ended = bayplan("deschedule", "plan", "-f", CLUSTER, "--policy", POLICY, "--decision", "upstream")
    assert ended.status == 1
    assert "descheduler would evict 5 pods" in ended.stdout


def test_nothing_to_do_is_status_0(tmp_path: Path) -> None:
    empty = tmp_path / "policy.yaml"
    empty.write_text("apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\nstrategies: {}\n")
    ended = bayplan("deschedule", "plan", "-f", CLUSTER, "--policy", str(empty))
    assert ended.status == 0
    assert 'warning: descheduler ignores the unknown field "strategies"' in ended.stdout


def test_a_strategy_that_cannot_run_is_status_3(tmp_path: Path) -> None:
    args = {
        "thresholds": {"MetricResource": 20},
        "targetThresholds": {"MetricResource": 50},
        "metricsUtilization": {"source": "Prometheus", "prometheus": {"query": "load"}},
    }
    policy = {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerPolicy",
        "profiles": [
            {
                "name": "p",
                "pluginConfig": [{"name": "LowNodeUtilization", "args": args}],
                "plugins": {"balance": {"enabled": ["LowNodeUtilization"]}},
            }
        ],
    }
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(policy))
    ended = bayplan("deschedule", "plan", "-f", CLUSTER, "--policy", str(path))
    assert ended.status == 3
    assert "prometheus client not initialized" in ended.stdout


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("- a", "failed decoding descheduler's policy config"),
        (
            json.dumps(
                {
                    "apiVersion": "descheduler/v1alpha2",
                    "profiles": [{"name": "p", "plugins": {"balance": {"enabled": ["Nope"]}}}],
                }
            ),
            "configures balance extension point of non-existing plugins: map[Nope:{}]",
        ),
    ],
)
def test_an_invalid_policy_is_status_2(tmp_path: Path, text: str, error: str) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    ended = bayplan("deschedule", "plan", "-f", CLUSTER, "--policy", str(path))
    assert ended.status == 2
    assert error in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["apply", "PLAN", "-f", CLUSTER], "a plan is applied to a live cluster"),
        (["run", "--policy", POLICY, "-f", CLUSTER], "a live cluster is descheduled"),
        (["run", "--policy", POLICY, "--leader-elect"], "--leader-elect needs --interval"),
        (["run", "--policy", POLICY, "--interval", "soon"], "'soon' is not a duration"),
        (["apply", "UPSTREAM"], "this plan has no targets"),
        (["apply", "OTHER"], "expected a document of kind DeschedulePlan"),
        (["plan", "--policy", "/no/such/file", "-f", CLUSTER], "failed to read policy config file"),
    ],
)
def test_what_is_rejected(tmp_path: Path, arguments: list[str], error: str) -> None:
    files = {"UPSTREAM": {"kind": "DeschedulePlan", "decision": "upstream"}, "OTHER": {"kind": "List"}}
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    ended = bayplan("deschedule", *arguments, directory=tmp_path)
    assert ended.status == 2
    assert error in ended.stderr


def test_a_plan_without_moves_is_applied_at_once(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"kind": "DeschedulePlan", "moves": []}))
    ended = bayplan("deschedule", "apply", str(path))
    assert (ended.status, ended.stdout) == (0, "the plan has no moves\n")


STRATEGY = """
from bayplan.deschedule.plugin import Cycle, Goal, PodArgs, Strategy


class ImageArgs(PodArgs, frozen=True):
    image: str = ""


class RemoveImage(Strategy):
    name = "RemoveImage"
    args_type = ImageArgs
    goal = Goal.RECREATE
    reason = "its image was withdrawn"

    def deschedule(self, cycle: Cycle) -> None:
        chosen = cycle.table.by_spec(lambda pod: pod.spec.containers[0].image == self.args.image)
        cycle.evict_by_node(cycle.pods(self.args) & chosen)
"""


def own_policy(**args: object) -> str:
    profile = {
        "name": "p",
        "pluginConfig": [{"name": "RemoveImage", "args": args}],
        "plugins": {"deschedule": {"enabled": ["RemoveImage"]}},
    }
    return json.dumps({"apiVersion": "descheduler/v1alpha2", "profiles": [profile]})


def test_users_can_write_strategies(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(STRATEGY)
    (tmp_path / "policy.json").write_text(own_policy(image="batch:1"))
    command = ("deschedule", "plan", "-f", CLUSTER, "--policy", "policy.json", "-o", "json")
    ended = bayplan(*command, "--strategy", "own.py:RemoveImage", directory=tmp_path)
    assert [one["pod"] for one in json.loads(ended.stdout)["moves"]] == ["shop/batch-1", "shop/batch-2"]
    (tmp_path / "policy.json").write_text(own_policy(image="batch:1", namespaces={"exclude": ["shop"]}))
    ended = bayplan(*command, "--strategy", "own.py:RemoveImage", directory=tmp_path)
    assert json.loads(ended.stdout)["moves"] == []
    (tmp_path / "policy.json").write_text(own_policy(picture="batch:1"))
    ended = bayplan(*command, "--strategy", "own.py:RemoveImage", directory=tmp_path)
    assert 'strict decoding error: unknown field "picture"' in ended.stderr
    ended = bayplan(*command, "--strategy", "own.py:ImageArgs", directory=tmp_path)
    assert "own.py:ImageArgs is not a subclass of Strategy" in ended.stderr


def test_whatif_shows_the_moves_after_the_changes() -> None:
    """Without node-4 the second pod of batch has no other place."""
    flags = ["-f", CLUSTER, "--deschedule", POLICY]
    before = json.loads(bayplan("whatif", *flags, "-o", "json").output)["deschedule"]
    after = json.loads(bayplan("whatif", *flags, "--cordon", "node-4", "-o", "json").output)["deschedule"]
    assert [one["pod"] for one in before["moves"]] == ["shop/web-1", "shop/batch-2"]
    assert [one["pod"] for one in after["moves"]] == ["shop/web-1"]
    shown = bayplan("whatif", *flags, "--cordon", "node-4").stdout
    assert f"\ndescheduling by {POLICY}: 1 move; descheduler would evict 5 pods\n" in shown
