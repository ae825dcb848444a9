"""`bayplan decide`: every mistake in files and configuration is one line that names its place."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
import yaml

from bayplan.cli.main import main

from .decide_files import CONFIG, SCENARIO, as_lines, cluster_file, node, pod

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TERM = "{matchExpressions: [{key: a, operator: Isnt, values: [b]}]}"


def in_spec(text: str) -> bytes:
    """A pod with this in its spec, on line 5."""
    return f"apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec:\n  {text}\n".encode()


def with_config(**fields: Any) -> bytes:
    return as_lines(SCENARIO | {"config": yaml.safe_load(CONFIG) | fields})


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        pytest.param("a.yaml", None, "{file}: No such file or directory", id="no file"),
        pytest.param("a.jsonl", None, "{file}: No such file or directory", id="no file of lines"),
        pytest.param("a.yaml", b"a: [\n", "{file}:2: this is not YAML: while parsing a f", id="broken YAML"),
        pytest.param("a.json", b'{"a": }', "{file}:1: Expecting value", id="broken JSON"),
        pytest.param("a.jsonl", b'\n\n{"objects": [}', "{file}:3: invalid JSON: ", id="broken line"),
        pytest.param("a.jsonl", b"3", "{file}:1: expected a scenario, a mapping with", id="no scenario"),
        pytest.param("a.jsonl", b'{"objects": 3}', "{file}:1: objects: expected a list", id="no objects"),
        pytest.param(
            "a.jsonl",
            as_lines({"objects": [], "pods": [node("n1")]}),
            '{file}:1: Node n1: only Pods are allowed in "pods"',
            id="a node that waits",
        ),
        pytest.param("a.jsonl.gz", b"nonsense", "{file}: it is not a gzip file: ", id="no gzip"),
        pytest.param("a.yaml", b"- 1\n", "{file}:1: expected an API object", id="no object"),
        pytest.param(
            "a.yaml",
            in_spec("containers: [{resources: {requests: {cpu: 1x}}}]"),
            '{file}:5: Pod a: spec.containers[0].resources.requests[cpu]: "1x" is not a quantity',
            id="malformed quantity",
        ),
        pytest.param(
            "a.jsonl",
            as_lines({"objects": [node("n1", cpu="1x")], "pods": []}),
            '{file}:1: Node n1: status.allocatable[cpu]: "1x" is not a quantity',
            id="malformed quantity in a scenario",
        ),
        pytest.param(
            "a.yaml",
            in_spec(f"affinity: {{nodeAffinity: {{{REQUIRED}: {{nodeSelectorTerms: [{TERM}]}}}}}}"),
            f"{{file}}:5: Pod a: spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0]"
            '.matchExpressions[0].operator: "Isnt" is not a valid node selector operator',
            id="unknown operator of a node selector",
        ),
        pytest.param(
            "a.yaml",
            in_spec(f"affinity: {{podAffinity: {{{REQUIRED}: [{{labelSelector: {TERM}}}]}}}}"),
            f"{{file}}:5: Pod a: spec.affinity.podAffinity.{REQUIRED}[0].labelSelector: "
            '"Isnt" is not a valid label selector operator',
            id="unknown operator of a label selector",
        ),
        pytest.param(
            "a.yaml",
            in_spec("containers: main"),
            "{file}:5: Pod a: spec.containers: expected a list, got a string",
            id="wrong type",
        ),
        pytest.param(
            "a.yaml",
            in_spec("priorityClassName: gold"),
            "{file}: Pod default/a: spec.priorityClassName: no PriorityClass with name gold was found",
            id="unknown priority class",
        ),
        pytest.param(
            "a.yaml",
            in_spec("hostNetwork: true") + b"---\n" + in_spec("hostNetwork: false"),
            "{file}:7: Pod a: the object occurs twice; first {file}:1",
            id="twice",
        ),
        pytest.param(
            "a.jsonl",
            with_config(parallelism="many"),
            '{file}:1: config: parallelism: expected an integer, got the string "many"',
            id="malformed configuration of a scenario",
        ),
        pytest.param(
            "a.jsonl",
            with_config(parallelism=0),
            "{file}:1: parallelism: Invalid value: 0: should be an integer value greater than zero",
            id="configuration of a scenario without sense",
        ),
        pytest.param(
            "a.jsonl",
            as_lines(SCENARIO | {"pods": [pod("a", schedulerName="other")]}),
            "{file}:1: Pod default/a: spec.schedulerName: no profile is named 'other', only ['default-",
            id="scheduler of a scenario's pod",
        ),
    ],
)
def test_mistakes_in_files(
    file: str, content: bytes | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line that names file, line or object, and field; status 2."""
    path = tmp_path / file
    if content is not None:
        path.write_bytes(content)
    assert main(["decide", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"error: {message.format(file=path)}")
    assert (captured.out, len(captured.err.splitlines())) == ("", 1)


def test_what_was_decided_before_a_mistake_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scenarios are read one at a time: a file that was cut off still has its beginning."""
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(as_lines(SCENARIO))[:-4])
    assert main(["decide", str(path)]) == 2
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 1
    assert captured.err.startswith(f"error: {path}: it is not a gzip file: ")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(None, "{file}: no such file or directory", id="no file"),
        pytest.param("a: [", "{file}:2: this is not YAML", id="broken YAML"),
        pytest.param(
            f"{CONFIG}parallelism: many\n", "{file}:3: parallelism: expected an integer", id="wrong type"
        ),
        pytest.param(
            f"{CONFIG}profiles:\n- plugins: {{score: {{enabled: [{{name: Foo, weight: 3000000000}}]}}}}\n",
            "{file}:4: profiles[0].plugins.score.enabled[0].weight: ",
            id="weight out of range",
        ),
    ],
)
def test_mistakes_in_the_configuration(
    content: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.yaml"
    if content is not None:
        config.write_text(content)
    assert main(["decide", str(cluster_file(tmp_path)), "--config", str(config)]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"error: {message.format(file=config)}")
    assert (captured.out, len(captured.err.splitlines())) == ("", 1)


def test_standard_input_is_there_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decide", "-", "--config", "-"]) == 2
    assert "standard input can be read only once" in capsys.readouterr().err
