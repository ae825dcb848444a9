"""A package of `bayplan plugin new`, broken in ten ways: each message says what to do, and where."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from bayplan.cli.main import main
from bayplan.cli.new_plugin import write_package

NODES = [
    {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "10"}},
    }
    for name in ("a", "b")
]
PODS = [
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"containers": [{"name": "main"}]},
    }
    for name, labels in (("p", {"example.com/prefer-ssd": "yes"}), ("q", {}))
]

FILTER = """        wanted = pod.labels.get(self.args.label)
        if wanted is None or node.labels.get(self.args.label) == wanted:
            return None
        return reject(f"node(s) didn't have {self.args.label}={wanted}", unresolvable=True)
"""
SCORE = "        return 100 if self.args.label in pod.labels or self.args.label not in node.labels else 0\n"
DEF = "    def filter_node(self, pod: Pod, node: NodeInfo) -> NodeRejection | None:\n"

DECIDE = ("decide", "cluster.yaml", "--config", "scheduler.yaml", "--plugin", "prefer_ssd.py:PreferSsd")
CHECK = ("plugin", "check", "prefer_ssd.py:PreferSsd", "--config", "scheduler.yaml")
ARGS = "      label: example.com/prefer-ssd\n"

WAYS = [
    pytest.param(
        ("prefer_ssd.py", DEF, DEF.replace(":\n", "\n")),
        DECIDE,
        "error: plugin prefer_ssd.py:PreferSsd: it cannot be imported: SyntaxError: expected ':' "
        "(prefer_ssd.py, line",
        id="a syntax error",
    ),
    pytest.param(
        ("prefer_ssd.py", "class PreferSsd(", "class PreferSsds("),
        DECIDE,
        "prefer_ssd.py has no class PreferSsd, but PreferSsds",
        id="another name",
    ),
    pytest.param(
        ("prefer_ssd.py", FILTER, "        return False\n"),
        DECIDE,
        'default/p: running "PreferSsd" filter plugin: filter_node returned False; '
        'return reject("reason") or None (prefer_ssd.py:',
        id="a truth instead of a rejection",
    ),
    pytest.param(
        ("prefer_ssd.py", SCORE, "        return 99.5\n"),
        DECIDE,
        'plugin "PreferSsd" failed with: score_node returned 99.5; return an integer from 0 to 100 '
        "(prefer_ssd.py:",
        id="a fraction as score",
    ),
    pytest.param(
        ("prefer_ssd.py", FILTER, '        return node.labels["zone"]\n'),
        DECIDE,
        "running \"PreferSsd\" filter plugin: KeyError: 'zone' (prefer_ssd.py:{line}, in filter_node)",
        id="an exception",
    ),
    pytest.param(
        ("prefer_ssd.py", DEF, DEF.replace("pod: Pod, ", "")),
        DECIDE,
        'running "PreferSsd" filter plugin: TypeError: PreferSsd.filter_node() takes 2 positional '
        "arguments but 3 were given (prefer_ssd.py)",
        id="a wrong signature",
    ),
    pytest.param(
        ("prefer_ssd.py", DEF, DEF.replace("def", "async def", 1)),
        DECIDE,
        "filter_node returned a coroutine; define it with def, not async def (prefer_ssd.py:",
        id="async",
    ),
    pytest.param(
        (
            "prefer_ssd.py",
            DEF,
            "    def filter(self, state, pod, nodes):\n        nodes.pod_count[0] = 7\n        return []\n\n"
            + DEF,
        ),
        DECIDE,
        'running "PreferSsd" filter plugin: ValueError: assignment destination is read-only (prefer_ssd.py:',
        id="a column is changed",
    ),
    pytest.param(
        ("scheduler.yaml", ARGS, "      lable: x\n"),
        DECIDE,
        'scheduler.yaml:12: profiles[0].pluginConfig[0].args.lable: unknown field, did you mean "label"?',
        id="a misspelled argument",
    ),
    pytest.param(
        ("prefer_ssd.py", SCORE, "        return min(100, len(node.pods))\n"),
        CHECK,
        "FAILED  depends on what it declares",
        id="a dependency that is not declared",
    ),
]


def test_there_are_ten() -> None:
    assert len(WAYS) == 10


@pytest.mark.parametrize(("edit", "command", "message"), WAYS)
def test_the_message_says_what_to_do(
    edit: tuple[str, str, str],
    command: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    package = write_package("PreferSsd", tmp_path / "prefer-ssd")
    (package / "cluster.yaml").write_text(yaml.safe_dump_all([*NODES, *PODS]))
    monkeypatch.chdir(package)
    file, old, new = edit
    text = (package / file).read_text()
    assert text.count(old) == 1
    (package / file).write_text(text.replace(old, new))
    if "{line}" in message:
        number = text[: text.index(old)].count("\n") + 1
        message = message.replace("{line}", str(number))
    assert main(list(command)) == 2
    captured = capsys.readouterr()
    output = captured.out if command is CHECK else captured.err
    assert message in output
    assert "Traceback" not in output
    assert str(tmp_path) not in output, "no path of this machine in messages"


def test_the_traceback_on_demand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = write_package("PreferSsd", tmp_path / "prefer-ssd")
    (package / "cluster.yaml").write_text(yaml.safe_dump_all([*NODES, *PODS]))
    monkeypatch.chdir(package)
    plugin = package / "prefer_ssd.py"
    plugin.write_text(plugin.read_text().replace(FILTER, '        return node.labels["zone"]\n'))
    assert main([*DECIDE, "--traceback"]) == 2
    captured = capsys.readouterr()
    assert 'return node.labels["zone"]' in captured.err
    assert "KeyError: 'zone'" in captured.err
    assert captured.err.count("Traceback (most recent call last)") == 1
    assert '"error":"running \\"PreferSsd\\" filter plugin' in captured.out


def test_a_plugin_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = write_package("PreferSsd", tmp_path / "prefer-ssd")
    (package / "cluster.yaml").write_text(yaml.safe_dump_all([*NODES, *PODS]))
    monkeypatch.chdir(package)
    assert main(list(DECIDE)) == 0
    output = capsys.readouterr()
    assert "2 node(s) didn't have example.com/prefer-ssd=yes" in output.out
    assert output.err == ""
