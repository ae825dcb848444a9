"""`bayplan decide`: reads every kind of FILE, selects pods, and prints tables or JSON."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from bayplan.api.releases import DEFAULT_RELEASE
from bayplan.cli.main import main

from .decide_files import CONFIG, OBJECTS, SCENARIO, as_lines, as_yaml, cluster_file, node, pod

AS_RELEASE = f"decided as Kubernetes {DEFAULT_RELEASE}"


def decide(
    capsys: pytest.CaptureFixture[str], *arguments: str | Path, status: int = 0
) -> list[dict[str, Any]]:
    """The lines of JSON."""
    assert main(["decide", *map(str, arguments), "--output", "json"]) == status
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("file", "content", "name"),
    [
        pytest.param("a.yaml", as_yaml(*OBJECTS), "", id="several documents"),
        pytest.param(
            "a.yaml", as_yaml({"apiVersion": "v1", "kind": "List", "items": list(OBJECTS)}), "", id="a List"
        ),
        pytest.param(
            "a.yaml",
            as_yaml(
                {"apiVersion": "v1", "kind": "PodList", "items": list(OBJECTS[1:])},
                {"apiVersion": "v1", "kind": "NodeList", "items": [OBJECTS[0]]},
            ),
            "",
            id="Lists of one kind",
        ),
        pytest.param("a.yml.gz", gzip.compress(as_yaml(*OBJECTS)), "", id="compressed YAML"),
        pytest.param(
            "a.json", json.dumps({"kind": "List", "items": OBJECTS}, indent=2).encode(), "", id="JSON"
        ),
        pytest.param("a.json", json.dumps(SCENARIO, indent=2).encode(), "case", id="a scenario"),
        pytest.param(
            "a.yaml",
            as_yaml(SCENARIO | {"objects": list(OBJECTS[:2]), "pods": [OBJECTS[2]]}),
            "case",
            id="a scenario in YAML",
        ),
        pytest.param("a.jsonl", as_lines(SCENARIO), "case", id="a line"),
        pytest.param(
            "a.jsonl", as_lines({"scenario": SCENARIO, "expect": []}), "case", id="a recorded decision"
        ),
        pytest.param("a.jsonl.gz", gzip.compress(as_lines(SCENARIO)), "case", id="compressed lines"),
    ],
)
def test_kinds_of_files(
    file: str, content: bytes, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same cluster and the same answer, however it is written; from a cluster, the name is the file's."""
    path = tmp_path / file
    path.write_bytes(content)
    (line,) = decide(capsys, path)
    assert line["name"] == (name or str(path))
    (result,) = line["results"]
    assert (result["pod"], result["fitError"]) == (
        "default/waiting",
        "0/1 nodes are available: 1 Insufficient cpu.",
    )


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(as_yaml(*OBJECTS), id="YAML"),
        pytest.param(json.dumps({"kind": "List", "items": OBJECTS}).encode(), id="JSON"),
        pytest.param(as_lines(SCENARIO, SCENARIO), id="scenarios"),
        pytest.param(gzip.compress(as_lines(SCENARIO)), id="compressed"),
    ],
)
def test_standard_input(
    content: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    lines = decide(capsys, "-")
    assert {result["pod"] for line in lines for result in line["results"]} == {"default/waiting"}


def test_a_directory_is_one_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "nodes.yaml").write_bytes(as_yaml(OBJECTS[0]))
    (tmp_path / "pods.json").write_text(json.dumps({"kind": "List", "items": OBJECTS[1:]}))
    (tmp_path / "notes.txt").write_text("not read: [")
    (line,) = decide(capsys, tmp_path)
    assert [result["pod"] for result in line["results"]] == ["default/waiting"]


def test_each_file_is_a_cluster_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A node of one file is no node for a pod of another."""
    for name, objects in (("a", OBJECTS[:1]), ("b", OBJECTS[2:])):
        (tmp_path / f"{name}.yaml").write_bytes(as_yaml(*objects))
    nodes, pods = decide(capsys, tmp_path / "a.yaml", tmp_path / "b.yaml")
    assert nodes["results"] == []
    assert pods["results"] == [{"pod": "default/waiting", "error": "no nodes available to schedule pods"}]


def test_a_pod_with_nothing_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(as_yaml({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare"}}, node("n1")))
    (line,) = decide(capsys, path)
    assert (line["results"][0]["pod"], line["results"][0]["best"]) == ("default/bare", ["n1"])


@pytest.mark.parametrize("content", [b"", b"---\n", b"kind: List\nitems: []\n", b"# nothing\n"])
def test_nothing_there(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(content)
    version = DEFAULT_RELEASE.version
    assert decide(capsys, path) == [
        {"name": str(path), "kubernetesVersion": version, "warnings": [], "skipped": [], "results": []}
    ]
    assert main(["decide", str(path), "--output", "table"]) == 0
    assert capsys.readouterr().out == f"{path}: 0 nodes, 0 assigned pods, 0 pending; {AS_RELEASE}\n"


def test_only_pods_that_wait_are_evaluated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deleted = pod("deleted")
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    path = tmp_path / "a.yaml"
    path.write_bytes(
        as_yaml(
            node("n1"),
            pod("runs", nodeName="n1"),
            pod("finished", phase="Succeeded"),
            pod("gated", schedulingGates=[{"name": "example.com/quota"}]),
            pod("foreign", schedulerName="other"),
            deleted,
            pod("waits"),
        )
    )
    (line,) = decide(capsys, path, status=3)
    assert [result["pod"] for result in line["results"]] == ["default/waits"]
    assert [skipped["pod"] for skipped in line["skipped"]] == [
        "default/gated",
        "default/foreign",
        "default/deleted",
    ]
    assert main(["decide", str(path), "--output", "table"]) == 3
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{path}: 1 node, 1 assigned pod, 1 pending; {AS_RELEASE}"
    assert [line for line in lines if " skipped: " in line] == [
        "default/gated skipped: it is gated by SchedulingGates "
        "(waiting for scheduling gates: [example.com/quota])",
        'default/foreign skipped: schedulerName is "other", and no profile has that name',
        "default/deleted skipped: it is being deleted",
    ]


def test_pods_that_wait_do_not_see_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Except where one is nominated: it counts as if it were there, for pods of at most its priority."""
    path = tmp_path / "a.yaml"
    path.write_bytes(as_yaml(node("n1"), pod("a", cpu="3"), pod("b", cpu="3")))
    (line,) = decide(capsys, path)
    assert [result["best"] for result in line["results"]] == [["n1"], ["n1"]]
    path.write_bytes(as_yaml(node("n1"), pod("a", cpu="3", nominated="n1"), pod("b", cpu="3")))
    (line,) = decide(capsys, path)
    assert [result["best"] for result in line["results"]] == [["n1"], []]


# Choosing pods


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    return cluster_file(tmp_path)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        pytest.param(["default/b"], ["default/b"], id="one"),
        pytest.param(["b"], ["default/b"], id="without a namespace"),
        pytest.param(["default/b", "default/a"], ["default/a", "default/b"], id="in the order of the file"),
    ],
)
def test_pod(wanted: list[str], found: list[str], cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = decide(capsys, cluster, *(argument for name in wanted for argument in ("--pod", name)))
    assert [result["pod"] for result in line["results"]] == found


def test_clusters_without_the_pod_are_left_out(
    cluster: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.yaml"
    other.write_bytes(as_yaml(node("n1"), pod("c")))
    lines = decide(capsys, other, cluster, "--pod", "default/a")
    assert [line["name"] for line in lines] == [str(cluster)]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param(
            "default/c",
            "Pod default/c: there is no such pod. Pending pods: default/a, default/b",
            id="unknown",
        ),
        pytest.param("default/runs", "Pod default/runs: it is skipped: it is assigned to n1", id="running"),
    ],
)
def test_a_pod_that_does_not_wait(
    name: str, message: str, cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["decide", str(cluster), "--pod", name]) == 2
    assert capsys.readouterr() == ("", f"error: {message}\n")


def test_many_pods_are_not_all_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(as_yaml(*(pod(f"p{i:02}") for i in range(30))))
    assert main(["decide", str(path), "--pod", "p3"]) == 2
    error = capsys.readouterr().err
    assert "Did you mean default/p" in error
    assert error.endswith("default/p19 and 10 more\n")


# Configuration


def test_config(cluster: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another configuration, another answer; it also replaces a scenario's own."""
    config = tmp_path / "config.yaml"
    config.write_text(
        f"{CONFIG}profiles:\n- plugins: {{filter: {{disabled: [{{name: NodeResourcesFit}}]}}}}\n"
    )
    (line,) = decide(capsys, cluster, "--pod", "b", "--config", config)
    assert line["results"][0]["feasible"] == ["n1", "n2"]
    lines = tmp_path / "a.jsonl"
    lines.write_bytes(as_lines(SCENARIO | {"config": yaml.safe_load(CONFIG)}))
    (line,) = decide(capsys, lines)
    assert line["results"][0]["feasible"] == []
    (line,) = decide(capsys, lines, "--config", config)
    assert line["results"][0]["feasible"] == ["n1"]


def test_ties(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The flag changes the configuration of a scenario, too, and leaves the rest of it."""
    sizes = ("2", "2", "8", "8", "2")
    nodes = [node(f"n{i}", cpu=cpu) for i, cpu in enumerate(sizes)]
    file, scenarios = tmp_path / "cluster.yaml", tmp_path / "scenarios.jsonl"
    file.write_bytes(as_yaml(*nodes, pod("waiting")))
    config: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
    }
    waiting = pod("waiting", schedulerName="own")
    scenario = {
        "objects": nodes,
        "pods": [waiting],
        "config": {**config, "profiles": [{"schedulerName": "own"}]},
    }
    scenarios.write_bytes(as_lines(scenario))
    for given in (file, scenarios):
        for flags, chosen in (([], "n3"), (["--tie-break", "FirstNode"], "n2")):
            assert main(["decide", str(given), *flags, "--output", "table"]) == 0
            assert f"default/waiting goes to {chosen} " in capsys.readouterr().out


def test_profiles_select_the_pods_to_decide(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, path = tmp_path / "config.yaml", tmp_path / "a.yaml"
    config.write_text(f"{CONFIG}profiles:\n- schedulerName: mine\n")
    path.write_bytes(as_yaml(node("n1"), pod("a", schedulerName="mine"), pod("b")))
    (line,) = decide(capsys, path, "--config", config, status=3)
    assert [result["pod"] for result in line["results"]] == ["default/a"]
    assert main(["decide", str(path), "--config", str(config), "--pod", "a"]) == 0


def test_extenders_are_not_called(cluster: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Better a warning than a decision that looks complete. It does not contain the password."""
    config = tmp_path / "config.yaml"
    config.write_text(f"{CONFIG}extenders:\n- {{urlPrefix: 'https://me:secret@a.example', filterVerb: f}}\n")
    shown = "https://me:***@a.example"
    message = f"extender {shown} is not called: its filters and scores are missing from the result"
    (line,) = decide(capsys, cluster, "--config", config)
    assert line["warnings"] == [{"reason": "NotRun", "object": shown, "message": message}]
    assert main(["decide", str(cluster), "--config", str(config), "--output", "table"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == f"warning: {message}"


def test_what_the_dump_leaves_out_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.yaml"
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    path.write_bytes(as_yaml(node("n1"), pod("p", volumes=[claim])))
    message = "PersistentVolumeClaim default/data is not in the dump: evaluated as if it did not exist"
    (line,) = decide(capsys, path)
    claim_name = "PersistentVolumeClaim default/data"
    warning = {"pod": "default/p", "reason": "MissingObject", "object": claim_name, "message": message}
    assert line["warnings"] == [warning]
    assert main(["decide", str(path), "--output", "table"]) == 0
    assert f"warning: {message}" in capsys.readouterr().out.splitlines()


def test_a_number_that_fits_nowhere_is_a_large_quantity(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.json"
    huge = pod("p")
    huge["spec"]["containers"][0]["resources"]["requests"]["example.com/x"] = 2**64
    path.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": [node("n1"), huge]}))
    (line,) = decide(capsys, path)
    assert line["results"][0]["fitError"] == "0/1 nodes are available: 1 Insufficient example.com/x."


# Output


def test_json_into_a_pipe_and_tables_on_demand(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decide", str(cluster)]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["name"] == str(cluster)
    assert main(["decide", str(cluster), "--output", "table"]) == 0
    out = capsys.readouterr().out
    assert " ".join(out.split()).startswith(f"{cluster}: 2 nodes, 1 assigned pod, 2 pending; {AS_RELEASE} ")
    assert "default/a goes to n2 · 2 of 2 nodes fit" in out
    assert "default/b is unschedulable; preemption would not help · 0 of 2 nodes fit" in out


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_tables_on_a_terminal(cluster: Path) -> None:
    command = f"[sys.executable, '-m', 'bayplan.cli.main', 'decide', {cluster.name!r}]"
    script = f"import pty, sys; sys.exit(pty.spawn({command}))"
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=cluster.parent, capture_output=True, text=True, check=True
    )
    assert "2 nodes, 1 assigned pod" in ended.stdout


def test_many_pods_get_a_line_each_and_the_first_ones_a_section(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(as_yaml(node("n1"), *(pod(f"p{i:02}") for i in range(12))))
    assert main(["decide", str(path), "--output", "table"]) == 0
    out = capsys.readouterr().out
    assert (out.count("the only feasible node"), out.count("goes to n1")) == (12, 10)
    assert out.endswith("… and 2 more pods; --pod NAMESPACE/NAME shows one in full\n")
    chosen = [argument for i in range(12) for argument in ("--pod", f"p{i:02}")]
    assert main(["decide", str(path), "--output", "table", *chosen]) == 0
    assert capsys.readouterr().out.count("goes to n1") == 12
