"""`bayplan bench --against`: another commit, and this code, measured in turn."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from bayplan.bench import against
from bayplan.bench.against import Comparison, checkout, compare, make_table
from bayplan.bench.runner import BenchError, Sizes
from bayplan.cli.main import main
from tests.effort import LONG_RUN

SMALL = Sizes(nodes=5, init_pods=2, pods=10)

GIT = ["git", "-C", str(against.SOURCE)]

in_repository = pytest.mark.skipif(
    subprocess.run([*GIT, "rev-parse", "HEAD"], capture_output=True, check=False).returncode != 0,
    reason="the source code is not in a git repository",
)

FAKE = """
import json

def main(arguments):
    pods = int(arguments[arguments.index("--pods") + 1])
    for _ in range({work} * pods):
        pass
    zero = dict.fromkeys(
        "pods_per_s p50_us p99_us rows_per_pod peak_rss_mb scheduled unscheduled evicted".split(), 0
    )
    sizes = dict(workload=arguments[1], nodes=1, init_pods=0, pods=pods)
    print(json.dumps(dict(zero, **sizes, cpu_us_per_pod={work})))
    return {status}

if __name__ == "__main__":
    raise SystemExit(main(__import__("sys").argv[1:]))
"""


def fake(folder: Path, name: str, work: int, status: int = 0) -> Path:
    """The source code of a bayplan whose pods take this much work."""
    package = folder / name / "bayplan" / "cli"
    package.mkdir(parents=True)
    for package_folder in (package, package.parent):
        (package_folder / "__init__.py").touch()
    (package / "main.py").write_text(FAKE.format(work=work, status=status))
    return folder / name


@in_repository
def test_against_the_last_commit(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(against, "can_count_instructions", lambda: False)
    sizes = ["--nodes", "5", "--init-pods", "2", "--pods", "10"]
    assert main(["bench", "SchedulingBasic", *sizes, "--against", "HEAD", "--rounds", "1", "--json"]) == 0
    line = json.loads(capsys.readouterr().out)
    assert (line["workload"], line["nodes"], line["init_pods"], line["pods"]) == ("SchedulingBasic", 5, 2, 10)
    assert min(line["cpu_us_per_pod_before"], line["cpu_us_per_pod"], line["cpu_ratio"]) > 0
    assert line["instruction_ratio"] is None


@in_repository
def test_the_checkout_is_removed() -> None:
    with checkout("HEAD") as (name, source):
        assert (source / "bayplan" / "__init__.py").is_file()
        assert source.parent.name == name
    assert not source.exists()
    listed = subprocess.run([*GIT, "worktree", "list"], capture_output=True, text=True, check=True)
    assert str(source.parent) not in listed.stdout


@in_repository
def test_an_unknown_commit() -> None:
    with pytest.raises(BenchError, match="there is no such commit"), checkout("no-such-branch"):
        pass


def test_the_least_time_of_both_sides_and_the_ratio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each side imports its own code."""
    monkeypatch.setattr(against, "can_count_instructions", lambda: False)
    monkeypatch.setattr(against, "SOURCE", fake(tmp_path, "new", 30))
    (result,) = compare([("Any", SMALL)], ("abc", fake(tmp_path, "old", 20)), rounds=2)
    assert (result.commit, result.cpu_us_per_pod_before, result.cpu_us_per_pod) == ("abc", 20, 30)
    assert result.cpu_ratio == 1.5


@LONG_RUN
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_instructions_of_pods_alone_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(against, "SOURCE", fake(tmp_path, "new", 3000))
    (result,) = compare([("Any", SMALL)], ("abc", fake(tmp_path, "old", 1000)), rounds=0)
    assert result.instruction_ratio == pytest.approx(3, rel=0.05)
    assert result.cpu_ratio is None


@pytest.mark.parametrize(
    "rounds", [pytest.param(0, id="counting", marks=LONG_RUN), pytest.param(1, id="measuring")]
)
def test_a_failed_run_is_an_error(rounds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not rounds and shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")
    monkeypatch.setattr(against, "can_count_instructions", lambda: not rounds)
    monkeypatch.setattr(against, "SOURCE", fake(tmp_path, "new", 1))
    with pytest.raises(BenchError, match=r"Any, with the code in .*old: it printed no message"):
        list(compare([("Any", SMALL)], ("abc", fake(tmp_path, "old", 1, status=3)), rounds=rounds))


def test_table() -> None:
    made = Comparison(workload="Any", nodes=5, init_pods=2, pods=10, commit="abc", cpu_ratio=1.5)
    assert make_table([made], "abc").row_count == 1


@pytest.mark.parametrize("option", ["--profile", "--by-plugin"])
def test_options_that_exclude_each_other(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "SchedulingBasic", "--against", "HEAD", option]) == 2
    assert "cannot be combined" in capsys.readouterr().err
