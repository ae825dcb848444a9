"""`bayplan queues`: the tree, the check, and what explain says about a pod that waits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands import bayplan

CLUSTER = ("-f", "examples/queues/cluster.yaml", "--config", "examples/queues/scheduler.yaml")


def test_the_tree_as_a_document() -> None:
    result = bayplan("queues", "-o", "json", *CLUSTER)
    rows = {row["queue"]: row for row in json.loads(result.stdout)["queues"]}
    assert rows["root.research"]["used"] == {"vcore": 5000, "memory": 2 << 30, "pods": 2}
    assert rows["root"]["pendingPods"] == 3


def test_another_file(tmp_path: Path) -> None:
    """--queues replaces the file of the configuration."""
    path = tmp_path / "queues.yaml"
    path.write_text(
        "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: one}]}]}]"
    )
    result = bayplan("queues", *CLUSTER, "--queues", str(path))
    assert "one" in result.stdout
    assert "research" not in result.stdout


def test_watching_ends_with_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupted)
    assert bayplan("queues", "--watch", *CLUSTER).status == 130


@pytest.mark.parametrize(
    ("text", "said", "status"),
    [
        pytest.param("partitions: []", "ok", 0, id="valid"),
        pytest.param("partitions: [{name: a}]", "queue config is not set", 2, id="invalid"),
        pytest.param(
            "kind: Namespace\n---\nkind: ConfigMap\ndata: {queues.yaml: 'partitions: [{name: a}]'}",
            "queue config is not set",
            2,
            id="the manifest of a ConfigMap",
        ),
        pytest.param(
            "partitions: [{name: a, placementrules: [{name: x}], queues: []}]",
            "unknown rule name specified x, failing placement rule config "
            "(at start every application would be rejected)",
            2,
            id="rules that cannot be built",
        ),
    ],
)
def test_check(tmp_path: Path, text: str, said: str, status: int) -> None:
    path = tmp_path / "q.yaml"
    path.write_text(text)
    result = bayplan("queues", "check", str(path))
    assert (result.stdout, result.status) == (f"{path}: {said}\n", status)


def test_check_of_files_that_cannot_be_read(tmp_path: Path) -> None:
    """The others are checked nevertheless."""
    missing, binary, valid = (str(tmp_path / name) for name in ("none.yaml", "b.yaml", "v.yaml"))
    Path(binary).write_bytes(b"\xff")
    Path(valid).write_text("partitions: [{name: default, queues: [{name: root}]}]")
    result = bayplan("queues", "check", missing, binary, valid)
    first, second, third = result.stdout.splitlines()
    assert (first, third) == (f"{missing}: no such file or directory", f"{valid}: ok")
    assert "can't decode byte" in second
    assert result.status == 2


def explained(pod: str) -> dict[str, object]:
    result = bayplan("explain", "pod", pod, "-o", "json", *CLUSTER)
    content = json.loads(result.stdout)["capacityQueue"]
    assert isinstance(content, dict)
    return content


def test_explain_names_the_limit() -> None:
    answer = explained("plot-1")
    assert answer["blockedBy"] == {
        "queue": "root.research",
        "user": "",
        "group": "",
        "resource": "vcore",
        "used": 5000,
        "asked": 2000,
        "max": 6000,
    }
    assert (answer["position"], answer["length"]) == (3, 3)


def test_explain_a_pod_that_has_room() -> None:
    assert explained("tune-2")["blockedBy"] is None


def test_whatif_with_another_file() -> None:
    """Pods that run already count, and those without room are named with the limit."""
    result = bayplan("whatif", "-o", "json", *CLUSTER, "--queues", "examples/queues/more.yaml")
    pods = {each["pod"]: each for each in json.loads(result.stdout)["pods"]}
    assert pods["default/tune-1"]["outcome"] == "Scheduled"
    assert pods["default/plot-1"]["reason"].endswith("vcore 8 used, 2 asked, 8 max")
