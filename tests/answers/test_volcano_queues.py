"""Answers about Volcano's queues, in Volcano's words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bayplan.cli.main import main

ROOT = Path(__file__).parents[2]
EXAMPLES = "examples/volcano"
CLUSTER = ["-f", f"{EXAMPLES}/cluster.yaml", "--config", f"{EXAMPLES}/scheduler.yaml"]


@pytest.fixture(autouse=True)
def in_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def command(*arguments: str) -> tuple[int, str]:
        status = main(arguments)
        return status, capsys.readouterr().out

    return command


def test_queues_show_deserved_and_share(run: Run) -> None:
    status, text = run("queues", *CLUSTER)
    row = next(line.split() for line in text.splitlines() if "research" in line)
    assert (status, row[:8], row[-1]) == (
        0,
        ["research", "cpu", "6,", "pods", "3", "cpu", "4", "cpu"],
        "Open",
    )
    assert "1.50" in row


def test_a_waiting_pod_reads_limit_order_and_why_nothing_goes(run: Run) -> None:
    _, text = run("explain", "pod", "tune-0", *CLUSTER)
    assert "waiting for queue research: cpu 6 allocated, 1 requested, 6 capability" in text
    assert "before it: queue production, share 0.00 (research has 1.50)" in text
    assert "queue research is not entitled to this: cpu 6 allocated, 1 requested, 4 deserved" in text


@pytest.mark.parametrize(
    ("research", "production", "reason"),
    [
        ('{deserved: {cpu: "4"}}', '{priority: 2, deserved: {cpu: "4"}}', "priority 2 (research has 0)"),
        ('{deserved: {cpu: "4"}}', '{deserved: {cpu: "4"}}', "share 0.00 (research has 1.50)"),
        ("{}", '{deserved: {cpu: "2"}}', "which has deserved resources (research has none)"),
        ("{}", "{}", "which is first by name (the shares are 1.00)"),
    ],
    ids=["its priority", "its share", "it deserves something", "its name"],
)
def test_a_queue_is_before_another_because_of(
    run: Run, tmp_path: Path, research: str, production: str, reason: str
) -> None:
    """The figures that were compared, in Volcano's order: a lower share does not explain a priority."""
    text = (ROOT / EXAMPLES / "cluster.yaml").read_text()
    text = text.replace('{deserved: {cpu: "4"}, capability: {cpu: "6"}}', research)
    text = text.replace('production}\nspec: {deserved: {cpu: "4"}}', f"production}}\nspec: {production}")
    if "2" in production and "priority" not in production:
        used = text[text.index("metadata: {name: train-0") :].partition("---")[0]
        used = used.replace("train-0", "serve-1").replace(": train}", ": serve}")
        text += "---\napiVersion: v1\nkind: Pod\n" + used
    file = tmp_path / "cluster.yaml"
    file.write_text(text)
    _, text = run("explain", "pod", "tune-0", "-f", str(file), *CLUSTER[2:])
    assert f"before it: queue production, {reason}\n" in text


def test_a_job_that_is_not_admitted_reads_the_limit_of_its_queue(run: Run, tmp_path: Path) -> None:
    """Its pods do not exist, because the queue has no room for them: nobody has to create some."""
    group = "spec: {minMember: 2, queue: research, minResources: {cpu: 2}}"
    text = f"apiVersion: scheduling.volcano.sh/v1beta1\nkind: PodGroup\nmetadata: {{name: late}}\n{group}\n"
    (tmp_path / "late.yaml").write_text(text)
    status, text = run("explain", "group", "late", *CLUSTER, "-f", str(tmp_path / "late.yaml"))
    assert "waiting for queue research: cpu 6 allocated, 2 requested, 6 capability" in text
    assert (status, "create 2 more pods" in text) == (0, False)


def test_a_pod_of_an_entitled_queue_reads_whom_it_may_reclaim_from(run: Run) -> None:
    _, text = run("explain", "pod", "serve-0", *CLUSTER)
    assert "it may reclaim from default/train-" in text
    assert "would preempt default/train-1 on n1" in text
    assert "no victims" not in text
    assert "priority below" not in text, "victims have the priority of the pod"


def test_a_pod_without_room_in_its_queue_preempts_nothing(run: Run, tmp_path: Path) -> None:
    """It has a higher priority than others of its queue, but is not tried."""
    text = (ROOT / EXAMPLES / "cluster.yaml").read_text()
    first, second = text.split("metadata: {name: tune-0")
    file = tmp_path / "cluster.yaml"
    file.write_text(
        f"{first}metadata: {{name: tune-0{second.replace('spec:', 'spec:' + chr(10) + '  priority: 9', 1)}"
    )
    _, text = run("explain", "pod", "tune-0", "-f", str(file), *CLUSTER[2:])
    assert "nothing is evicted for it while its queue has no room\n" in text


def test_what_the_queue_has_reported_is_no_contradiction(run: Run, tmp_path: Path) -> None:
    """With room on nodes; an autoscaler reads Unschedulable, because more nodes would raise the limit."""
    pod = """
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: default}
spec: {schedulerName: volcano, containers: [{name: c, image: i, resources: {requests: {cpu: "1"}}}]}
status:
  conditions:
  - {type: PodScheduled, status: "False", reason: Unschedulable, message: "waiting for queue x: cpu"}
"""
    (tmp_path / "pod.yaml").write_text(pod)
    _, text = run("explain", "pod", "p", "-f", str(tmp_path / "pod.yaml"), *CLUSTER)
    assert "default/p" in text
    assert "waiting for queue x" not in text


def test_a_pod_that_never_preempts_reads_that(run: Run, tmp_path: Path) -> None:
    text = (ROOT / EXAMPLES / "cluster.yaml").read_text()
    first, second = text.split("metadata: {name: serve-0")
    file = tmp_path / "cluster.yaml"
    policy = "spec:\n  preemptionPolicy: Never\n"
    file.write_text(f"{first}metadata: {{name: serve-0{second.replace('spec:' + chr(10), policy)}")
    _, text = run("explain", "pod", "serve-0", "-f", str(file), *CLUSTER[2:])
    assert "nothing would be evicted for it: its preemptionPolicy is Never\n" in text


def test_a_group_reads_what_its_queue_has(run: Run) -> None:
    """It would fit on a node, and is not called schedulable."""
    _, text = run("explain", "group", "default/tune", *CLUSTER)
    assert "its queue: cpu 6, pods 3 allocated, cpu 4 deserved, share 1.50" in text
    assert "waiting for queue research: cpu 6 allocated, 1 requested, 6 capability" in text
    _, text = run("explain", "group", "default/tune", *CLUSTER, "-o", "json")
    report = json.loads(text)
    assert report["schedulable"] is False
    assert report["capacityQueue"]["blockedBy"]["resource"] == "cpu"


def test_a_gang_needs_room_for_all_its_minimum(run: Run, tmp_path: Path) -> None:
    """Each of two pods has room, both together do not."""
    text = (ROOT / EXAMPLES / "cluster.yaml").read_text()
    second = text[text.index("metadata: {name: tune-0") :].partition("---")[0]
    text = text.replace(
        'name: research}\nspec: {deserved: {cpu: "4"}, capability: {cpu: "6"}}',
        'name: research}\nspec: {deserved: {cpu: "4"}, capability: {cpu: "7"}}',
    )
    text = text.replace("spec: {minMember: 1, queue: research}", "spec: {minMember: 2, queue: research}")
    text += "---\napiVersion: v1\nkind: Pod\n" + second.replace("tune-0", "tune-1")
    file = tmp_path / "cluster.yaml"
    file.write_text(text)
    for name in ("pod", "tune-0"), ("group", "tune"):
        _, text = run("explain", *name, "-f", str(file), *CLUSTER[2:])
        assert "waiting for queue research: cpu 6 allocated, 2 requested, 7 capability" in text


def test_a_group_of_an_entitled_queue_reads_whom_it_would_evict(run: Run) -> None:
    _, text = run("explain", "group", "default/serve", *CLUSTER)
    assert "nothing allocated, cpu 4 deserved, share 0.00" in text
    assert "would be evicted: default/train-1" in text


def test_a_changed_queue_can_be_tried(run: Run) -> None:
    status, text = run("whatif", *CLUSTER, "--add", f"{EXAMPLES}/less-production.yaml")
    assert (status, "preempted" in text) == (1, False)
    assert "Queue production changed" in text
    assert "waiting for queue research: cpu 6 allocated, 1 requested, 6 capability" in text


def test_a_queue_needs_the_dialect(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["whatif", *CLUSTER[:2], "--add", f"{EXAMPLES}/less-production.yaml"])
    assert status == 2
    assert "the configuration has no queues of Volcano" in capsys.readouterr().err


def test_another_configuration_can_be_tried(run: Run, tmp_path: Path) -> None:
    """With reclaim a pod goes; without it nothing is evicted."""
    text = (ROOT / EXAMPLES / "volcano-scheduler.conf").read_text()
    without = tmp_path / "without.conf"
    without.write_text(text.replace(", preempt, reclaim", ""))
    assert "1 pod preempted" in run("whatif", *CLUSTER, "--queues", f"{EXAMPLES}/more.conf")[1]
    status, text = run("whatif", *CLUSTER, "--queues", str(without))
    assert (status, "preempted" in text) == (1, False)


def test_check_names_what_is_not_used(run: Run, tmp_path: Path) -> None:
    status, text = run("queues", "check", f"{EXAMPLES}/volcano-scheduler.conf")
    assert status == 0
    assert "not used: plugin predicates (its work is done by kube-scheduler's filters)" in text
    wrong = tmp_path / "wrong.conf"
    wrong.write_text("actions: enqueue, dance\n")
    status, text = run("queues", "check", str(wrong))
    assert (status, "failed to find Action  dance" in text) == (2, True)


def test_check_names_what_only_volcano_does(run: Run, tmp_path: Path) -> None:
    conf = tmp_path / "own.conf"
    conf.write_text(
        "actions: allocate\ntiers:\n- plugins: [{name: overcommit}, {name: drf, enableHierarchy: true}]\n"
    )
    _, text = run("queues", "check", str(conf))
    assert "not used: plugin overcommit" in text
    assert "not used: plugin drf: enableHierarchy" in text


def test_check_names_arguments_that_volcano_replaces_by_their_default(run: Run, tmp_path: Path) -> None:
    conf = tmp_path / "own.conf"
    arguments = "arguments: {ancestorReclaimLevel: 1.5, other: 1}"
    conf.write_text(f"actions: allocate\ntiers:\n- plugins: [{{name: capacity, {arguments}}}]\n")
    status, text = run("queues", "check", str(conf))
    assert status == 0
    assert "not used: plugin capacity: argument ancestorReclaimLevel (it is not an integer)\n" in text
    assert "not used: plugin capacity: argument other\n" in text


def test_check_reads_the_config_map_of_volcano(run: Run, tmp_path: Path) -> None:
    """As kubectl prints it. Without actions Volcano rejects a configuration; it is no queues.yaml."""
    manifest = tmp_path / "map.yaml"
    text = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\ndata:\n  volcano-scheduler.conf: |\n    {}\n"
    )
    manifest.write_text(text.format("actions: enqueue, shuffle"))
    assert run("queues", "check", str(manifest)) == (0, f"{manifest}: ok\n  not used: action shuffle\n")
    manifest.write_text("  actions: allocate\n  tiers: []\n")  # copied with its indentation
    assert run("queues", "check", str(manifest)) == (0, f"{manifest}: ok\n")
    manifest.write_text(text.format("tiers: []"))
    assert run("queues", "check", str(manifest)) == (2, f"{manifest}: failed to find Action \n")


def test_kinds_can_be_installed_without_volcano(run: Run) -> None:
    status, text = run("queues", "crds")
    assert status == 0
    assert text.count("kind: CustomResourceDefinition") == 4
