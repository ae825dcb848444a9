"""Text of tenants' objects cannot act on a terminal or forge lines, whichever command prints it."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.table import Table
from rich.text import Text

from bayplan.answers.explain.tables import one_line
from bayplan.cli.errors import report
from bayplan.cli.main import main
from bayplan.cli.output import SafeConsole
from bayplan.cli.terminal import SafeFormatter, echo
from bayplan.embedded.up.report import Outcome, Section, State, lines, row_of
from bayplan.embedded.up.screen import LogLines, PlainLines
from bayplan.errors import InputError
from bayplan.printable import printable, printable_json
from bayplan.process.logs import JSONFormatter, KlogFormatter
from tests.cli.decide_files import CONFIG, node, pod

EXAMPLES = Path(__file__).parents[2] / "examples"
HOSTILE = "a\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b31m\x7f\u202eb\u2066\u200b\u2028\U000e0041\rc\nFORGED d"
UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\U000e0041]"
)


def check(output: str) -> None:
    """Nothing in the output acts on a terminal, and no line is the tenant's."""
    assert UNSAFE.search(output) is None, ascii(output)
    assert not re.search(r"^FORGED", output, re.MULTILINE), output


def texts(value: Any) -> Iterator[str]:
    """All strings of a document, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from texts([*value.keys(), *value.values()])
    elif isinstance(value, list):
        for one in value:
            yield from texts(one)


def hostile_objects() -> list[dict[str, Any]]:
    """A cluster in which every text that a tenant chooses is hostile."""
    bad_node = node(f"n{HOSTILE}", taints=[{"key": HOSTILE, "value": HOSTILE, "effect": "NoSchedule"}])
    bad_node["metadata"]["labels"] = {"zone": HOSTILE, HOSTILE: "x"}
    plain = node("n1")
    plain["metadata"]["labels"] = {"zone": "eu"}
    running = pod(f"r{HOSTILE}", nodeName="n1", cpu="3")
    running["metadata"]["labels"] = {"app": HOSTILE}
    # Selectors are validated when they are read: an invalid one would end every command before it prints.
    anti = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "zone"}
    waiting = pod(
        f"w{HOSTILE}",
        cpu="2",
        nodeSelector={"zone": HOSTILE},
        affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [anti]}},
        priority=10,
    )
    waiting["metadata"]["annotations"] = {HOSTILE: HOSTILE}
    waiting["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": HOSTILE}
    ]
    fits = pod("fits", cpu="500m")
    fits["status"]["conditions"] = waiting["status"]["conditions"]
    claim = pod("claims", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": HOSTILE}}])
    gated = pod("gated", schedulingGates=[{"name": HOSTILE}])
    foreign = pod("foreign", schedulerName=HOSTILE)
    member = pod(f"m{HOSTILE}", cpu="100", schedulingGroup={"podGroupName": "g"})
    gang = {"schedulingPolicy": {"gang": {"minCount": 1}}}
    group = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "spec": gang}
    group["metadata"] = {"name": "g", "namespace": "default"}
    orphan = pod("orphan", schedulingGroup={"podGroupName": HOSTILE})
    return [bad_node, plain, running, waiting, fits, claim, gated, foreign, member, group, orphan]


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": hostile_objects()}))
    return str(file)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def run_command(*arguments: str) -> str:
        status = main(arguments)
        captured = capsys.readouterr()
        assert captured.out or captured.err, status
        # A cluster that cannot be read would end every command before it prints anything of it.
        assert not re.match(r"error: \S+/cluster\.json:\d+:", captured.err), captured.err
        check(captured.out)
        check(captured.err)
        return captured.out

    return run_command


@pytest.mark.parametrize("output", ["table", "json", "yaml"])
@pytest.mark.parametrize(
    "command",
    [
        ("explain", "pod", f"default/w{HOSTILE}"),
        ("explain", "pod", f"default/r{HOSTILE}"),
        ("explain", "pod", "fits"),
        ("explain", "pod", "claims"),
        ("explain", "pod", "gated"),
        ("explain", "pod", "foreign"),
        ("explain", "pod", HOSTILE),
        ("explain", "node", f"n{HOSTILE}"),
        ("explain", "node", "n1"),
        ("explain", "node", HOSTILE),
        ("explain", "group", "g"),
        ("explain", "group", HOSTILE),
        ("explain", "group", f"none{HOSTILE}"),
        ("deschedule", "plan", "--policy", str(EXAMPLES / "deschedule" / "policy.yaml")),
        ("queues", "--queues", str(EXAMPLES / "queues" / "queues.yaml")),
        ("queues",),
        ("whatif",),
        ("whatif", "--drain", f"n{HOSTILE}"),
        ("whatif", "--remove-node", "n1"),
        ("whatif", "--scale", f"{HOSTILE}=3"),
        ("capacity", f"default/w{HOSTILE}"),
        ("capacity", "default/fits", "--for", "2000", "--nodes", f"n{HOSTILE}"),
        ("compare", "default"),
        ("compare", "--emulated-version", "1.36", "--emulated-version", "1.37"),
    ],
    ids=lambda words: " ".join(words).split("a\x1b")[0],
)
def test_commands_about_a_cluster(
    command: tuple[str, ...], output: str, cluster: str, run: Callable[..., str]
) -> None:
    printed = run(*command, "-f", cluster, "-o", output)
    if output != "table" and printed:
        # Escapes mean the same: nothing is lost for programs.
        read = json.loads(printed) if output == "json" else yaml.safe_load(printed)
        assert "FORGED" not in printed or any("\nFORGED" in text for text in texts(read))


@pytest.mark.parametrize("output", ["table", "json", "yaml"])
@pytest.mark.parametrize(
    "command",
    [
        ("place", "--add", str(EXAMPLES / "fleet" / "web.yaml")),
        ("explain", "--add", str(EXAMPLES / "fleet" / "web.yaml")),
        ("drain", "here"),
        ("lose", "here"),
    ],
    ids=lambda words: words[0],
)
def test_commands_about_several_clusters(
    command: tuple[str, ...], output: str, cluster: str, run: Callable[..., str]
) -> None:
    there = str(EXAMPLES / "fleet" / "west.yaml")
    run("fleet", *command, "--cluster", f"here={cluster}", "--cluster", f"there={there}", "-o", output)


@pytest.mark.parametrize(
    "command",
    [
        ("decide", "--output", "table"),
        ("decide", "--output", "json"),
        ("decide", "--allocations"),
        ("decide", "--compare-version", "1.36", "--output", "table"),
        ("decide", "--compare-version", "1.36", "--output", "json"),
        ("decide", "--pod", HOSTILE),
    ],
    ids=lambda words: " ".join(words).split("a\x1b")[0],
)
def test_decide(command: tuple[str, ...], cluster: str, run: Callable[..., str]) -> None:
    run(*command, cluster)


def test_snapshots_and_configurations(cluster: str, tmp_path: Path, run: Callable[..., str]) -> None:
    run("snapshot", "-f", cluster, "--to", str(tmp_path / "s.json"))
    config = tmp_path / "config.yaml"
    hostile = json.dumps(HOSTILE)
    plugins = f"{{filter: {{enabled: [{{name: {hostile}}}]}}}}"
    config.write_text(f"{CONFIG}profiles:\n- schedulerName: {hostile}\n  plugins: {plugins}\n")
    run("config", "check", str(config))
    run("config", "show", str(config))
    run("config", "show", "--json", str(config))
    run("explain", "node", "n1", "-f", cluster, "--config", str(config))
    run("plugin", "check", HOSTILE)
    run("plugin", "list", "--plugin", f"{HOSTILE}:A")
    run("plugin", "list", "--json", "--plugin", f"{HOSTILE}:A")
    run(HOSTILE)
    run("replay", f"{tmp_path}/{printable(HOSTILE)}")


def test_malformed_files(tmp_path: Path, run: Callable[..., str]) -> None:
    file = tmp_path / "bad.json"
    bad = pod(HOSTILE)
    bad["spec"]["containers"][0]["resources"]["requests"]["cpu"] = HOSTILE
    file.write_text(json.dumps(bad))
    run("decide", str(file))
    run("explain", "pod", "x", "-f", str(file))
    run("whatif", "--add", str(file), "-f", str(file))


def test_errors_of_several_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(InputError(f"first\nsecond {HOSTILE}")) == 2
    output = capsys.readouterr().err
    check(output)
    assert output.startswith("error: first\n  second a\\x1b]52")


@pytest.mark.parametrize("formatter", [KlogFormatter(), JSONFormatter(), SafeFormatter("%(message)s")])
def test_log_lines(formatter: logging.Formatter) -> None:
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    try:
        raise ValueError(HOSTILE)
    except ValueError as error:
        record = logging.LogRecord("x", logging.ERROR, "x.py", 1, "%s", (HOSTILE,), (ValueError, error, None))
    facts = logging.LogRecord("x", logging.INFO, "x.py", 1, "message", (), None)
    facts.fields = {"pod": HOSTILE.replace("\n", ""), "lines": HOSTILE, "all": [HOSTILE]}
    for one in (record, facts):
        handler.emit(one)
    lines = stream.getvalue()
    assert UNSAFE.search(lines) is None, ascii(lines)
    if not isinstance(formatter, SafeFormatter):
        check(lines)


def test_lines_and_page_of_up(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = Outcome(HOSTILE, "uid", State.UNSCHEDULABLE, HOSTILE, HOSTILE, 0.0)
    plain = PlainLines()
    plain.add(outcome)
    echo(*plain.take())
    check(capsys.readouterr().out)
    section = Section(State.UNSCHEDULABLE, 1, [row_of([outcome])])
    check("\n".join(line.plain for line in lines(section)))
    log = LogLines()
    log.emit(logging.LogRecord("x", logging.ERROR, "x.py", 1, "%s", (HOSTILE,), None))
    check("\n".join(log.kept))


def test_tables_of_other_modules_are_escaped_too() -> None:
    """A cell that nobody escaped before is escaped when it is drawn."""
    stream = StringIO()
    console = SafeConsole(file=stream, width=200, highlight=False, markup=False)
    table = Table()
    table.add_column(HOSTILE.replace("\n", ""))
    table.add_row(Text(HOSTILE.replace("\n", "")))
    console.print(table)
    console.print(Text.assemble(("x", "bold"), HOSTILE))
    check(stream.getvalue())


def test_styles_stay_where_they_are() -> None:
    cleaned = one_line(Text.assemble(("ab", "red"), "\x1b\n", ("cd", "green")))
    assert cleaned.plain == "ab\\x1b\\ncd"
    styled = {cleaned.plain[span.start : span.end]: span.style for span in cleaned.spans}
    assert styled == {"a": "red", "b": "red", "c": "green", "d": "green"}


def test_json_means_the_same() -> None:
    text = json.dumps({"a": HOSTILE}, ensure_ascii=False)
    assert json.loads(printable_json(text)) == {"a": HOSTILE}
    assert UNSAFE.search(printable_json(text)) is None
