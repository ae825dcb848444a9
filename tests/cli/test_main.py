"""The command line: quick to start, and an error is one line and status 2, never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import click
import pytest

from bayplan import __version__
from bayplan.cli.errors import report
from bayplan.cli.main import COMMANDS, LazyCommand, main
from bayplan.errors import BayplanError, InputError


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bayplan.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"bayplan {__version__}\n"


def test_help_lists_all_commands_and_imports_none() -> None:
    """A slow start is felt at every call; NumPy alone is a tenth of a second."""
    script = (
        "import sys; from bayplan.cli.main import main; main(['--help']);"
        "print([name for name in ('numpy', 'msgspec', 'yaml', 'rich') if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert all(f"  {name} " in ended.stdout for name in COMMANDS)
    assert ended.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["bnech"], "no such command 'bnech'. Did you mean bench?", id="unknown command"),
        pytest.param(["bench", "--nods", "3"], "--nodes", id="unknown option"),
        pytest.param(["bench", "--nodes", "0"], "0 is not in the range", id="number out of range"),
        pytest.param(["bench", "SchedulngBasic"], "did you mean SchedulingBasic", id="unknown workload"),
        pytest.param(["bench", "Nothing"], "--list shows them all", id="workload like no other"),
    ],
)
def test_errors_are_one_line_and_status_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert message in captured.err
    assert "Traceback" not in captured.err


def test_errors_of_a_real_process() -> None:
    ended = run("bench", "Nothing", "--core")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "error: unknown workload 'Nothing': --list shows them all\n"


def test_no_command_shows_the_help() -> None:
    ended = run()
    assert ended.returncode in (0, 2)  # older versions of click count it as success
    assert "Commands:" in ended.stdout + ended.stderr
    assert "error:" not in ended.stderr


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        pytest.param(BayplanError("it is wrong"), 2, "error: it is wrong\n", id="an error of bayplan"),
        pytest.param(
            InputError("no", source="a.yaml", line=3), 2, "error: a.yaml:3: no\n", id="one with a place"
        ),
        pytest.param(
            FileNotFoundError(2, "No such file or directory", "a.yaml"),
            2,
            "error: a.yaml: No such file or directory\n",
            id="a missing file",
        ),
        pytest.param(click.ClickException("oh"), 2, "error: oh\n", id="one of click's"),
        pytest.param(KeyboardInterrupt(), 130, "", id="Ctrl-C"),
        pytest.param(click.Abort(), 130, "", id="Ctrl-C as click raises it"),
    ],
)
def test_report(error: BaseException, status: int, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert (report(error), capsys.readouterr().err) == (status, line)


def test_a_bug_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        report(ZeroDivisionError())


@pytest.mark.parametrize(
    ("error", "status"), [(BayplanError("broken"), 2), (KeyboardInterrupt(), 130), (BrokenPipeError(), 141)]
)
def test_whatever_a_command_raises(
    error: BaseException, status: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def failing() -> None:
        raise error

    monkeypatch.setattr(LazyCommand, "load", lambda self: failing)
    if isinstance(error, BrokenPipeError):
        error.errno = 32  # click would end with status 1
    assert main(["bench"]) == status
    assert "Traceback" not in capfd.readouterr().err


def test_the_reader_of_the_output_ends_early() -> None:
    """`bayplan … | head -1` ends quietly."""
    script = f"{sys.executable} -m bayplan.cli.main bench --list --json | head -1"
    ended = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert (len(ended.stdout.splitlines()), ended.stderr) == (1, "")


def test_bench_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--list", "--json", "preemptionbasic", "MixedShapes"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["workload"], line["nodes"]) for line in lines] == [
        ("Preemption", 5000),
        ("MixedShapes", 5000),
    ]
    assert main(["bench", "--list"]) == 0
    assert "SchedulingRequiredPodAntiAffinityWithNSSelector  5,000" in capsys.readouterr().out


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_in_the_module_of_the_table(name: str) -> None:
    """The table names modules; a command that moved would be found only when called."""
    assert COMMANDS[name].load().name == name


@pytest.mark.parametrize("arguments", [["--help"], ["bench", "--help"], ["bench", "--list"]])
def test_a_reader_that_goes_away_ends_the_command_like_a_signal(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as output:
        command = [sys.executable, "-m", "bayplan.cli.main", *arguments]
        ended = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, check=False)
    assert (ended.returncode, ended.stderr) == (141, b"")
