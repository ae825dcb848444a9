"""Small things that a new user tries in the first five minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bayplan.cli.main import main
from tests.cli.decide_files import CONFIG, as_yaml, node, pod

BAD_SCORES = """
from bayplan.plugin import NodePlugin

class Raises(NodePlugin):
    def score_node(self, state, pod, node):
        raise ValueError("no such table")

class TooHigh(NodePlugin):
    def score_node(self, state, pod, node):
        return 1000
"""


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    path = tmp_path / "cluster.yaml"
    path.write_bytes(
        as_yaml(node("n1"), node("n2"), pod("runs", nodeName="n1"), pod("a"), pod("b", cpu="90"))
    )
    return str(path)


@pytest.mark.parametrize("plugin", ["Raises", "TooHigh"])
@pytest.mark.parametrize(
    "command",
    [("explain", "pod", "a", "-f"), ("explain", "pod", "runs", "-f"), ("explain", "node", "n1", "-f"),
     ("decide", "--output", "table")],
    ids=lambda words: " ".join(words[:3]),
)  # fmt: skip
def test_a_score_plugin_that_fails_is_named(
    plugin: str, command: tuple[str, ...], cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / f"scores_{plugin.lower()}.py"
    file.write_text(BAD_SCORES)
    assert main([*command, cluster, "--plugin", f"{file}:{plugin}"]) == 2
    captured = capsys.readouterr()
    assert "because a plugin failed" in captured.err
    assert plugin in captured.err


def test_too_many_nodes_are_refused_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "--nodes", "2000000"]) == 2
    assert "2000000 is not in the range 0<=x<=100000" in capsys.readouterr().err


def owned(name: str, kind: str, owner: str, **spec: Any) -> dict[str, Any]:
    made = pod(name, **spec)
    reference = {"apiVersion": "v1", "kind": kind, "name": owner, "uid": f"u-{owner}", "controller": True}
    made["metadata"] |= {"namespace": "shop", "ownerReferences": [reference]}
    made["metadata"]["labels"] = {"pod-template-hash": "5d"}
    return made


@pytest.fixture
def workloads(tmp_path: Path) -> str:
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"pod-template-hash": "5d"}}},
        "status": {"disruptionsAllowed": 0},
    }
    path = tmp_path / "workloads.yaml"
    path.write_bytes(
        as_yaml(
            node("n1"),
            node("n2"),
            owned("web-5d-a", "ReplicaSet", "web-5d", nodeName="n1"),
            owned("web-5d-b", "ReplicaSet", "web-5d"),
            owned("batch-x", "Job", "batch"),
            pod("a"),
            budget,
        )
    )
    return str(path)


@pytest.mark.parametrize(
    ("words", "explained"),
    [
        (("pod/a",), "default/a"),
        (("pods", "a"), "default/a"),
        (("po/a",), "default/a"),
        (("pod", "web-5d-b", "-A"), "shop/web-5d-b"),
        (("deployment", "web", "-n", "shop"), "shop/web-5d-b"),
        (("deploy/web", "-n", "shop"), "shop/web-5d-b"),
        (("deployment", "web", "-A"), "shop/web-5d-b"),
        (("rs/web-5d", "-n", "shop"), "shop/web-5d-b"),
        (("job", "batch", "-n", "shop"), "shop/batch-x"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else words,
)
def test_explain_takes_names_as_kubectl_does(
    words: tuple[str, ...], explained: str, workloads: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *words, "-f", workloads]) == 0
    assert f"\n{explained} goes to " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("pod", "nope", "-A"), "there is no such pod"),
        (("job", "web", "-n", "shop"), "job shop/web: it has no pods"),
        (("secret/x",), "No such command"),
    ],
)
def test_names_that_do_not_exist(
    words: tuple[str, ...], message: str, workloads: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *words, "-f", workloads]) == 2
    assert message in capsys.readouterr().err


def test_nodes_may_be_written_with_their_kind(workloads: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "node/n1", "-f", workloads]) == 0
    assert "n1 has 1 pod" in capsys.readouterr().out
    assert main(["whatif", "--cordon", "node/n1", "-f", workloads]) == 0
    assert main(["whatif", "--remove-node", "nodes/n1", "-f", workloads]) == 0


def test_a_budget_that_blocks_a_drain_is_a_no(workloads: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["whatif", "--drain", "node/n1", "-f", workloads]) == 1
    output = capsys.readouterr().out
    assert "evicts 1 pod of PodDisruptionBudget shop/web, which allows 0" in output
    assert "0 not" in output, "every pod would fit"
    assert main(["whatif", "--drain", "node/n2", "-f", workloads]) == 0


def test_decide_prints_tables_in_a_pipe(cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decide", cluster, "-o", "table"]) == 0
    assert "goes to" in capsys.readouterr().out


def test_an_absent_plugin_is_named_with_the_option_for_it(
    cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.yaml"
    plugins = "{filter: {enabled: [{name: Elsewhere}]}}"
    config.write_text(f"{CONFIG}profiles:\n- schedulerName: default-scheduler\n  plugins: {plugins}\n")
    assert main(["explain", "pod", "a", "-f", cluster, "--config", str(config)]) == 0
    assert "Pass --plugin SOURCE:CLASS" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As docs/completion.md describes it."""
    monkeypatch.setenv("_BAYPLAN_COMPLETE", f"{shell}_source")
    assert main([]) == 0
    assert f"{shell}_complete" in capsys.readouterr().out
    monkeypatch.setenv("_BAYPLAN_COMPLETE", f"{shell}_complete")
    monkeypatch.setenv("COMP_WORDS", "bayplan expl")
    monkeypatch.setenv("COMP_CWORD", "expl" if shell == "fish" else "1")
    assert main([]) == 0
    assert "explain" in capsys.readouterr().out
