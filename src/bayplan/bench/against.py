"""Compares this code with another commit: `bayplan bench --against COMMIT`.

The commit is checked out into a temporary folder. Both sides run `bayplan bench` in processes of their own,
in turn, so that a machine that becomes slower affects both; the least CPU time of several rounds counts.
Where valgrind is installed, instructions are counted too: other processes hardly change that number.

Nothing but the command line of `bayplan bench` is used, so that older commits with other modules can be
measured. Both sides get the sizes of this one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
from rich.table import Table

import bayplan
from bayplan.bench.runner import BenchError, Measurement, Progress, Sizes, no_progress

SOURCE: Final = Path(bayplan.__file__).parents[1]
"""The folder from which this code is imported."""

SUBTRACTED: Final = 5
"""One pod in five is measured in the run that is subtracted."""

_INSTRUCTIONS: Final = re.compile(r"^==(\d+)== I +refs: +([\d,]+)", re.MULTILINE)
_OF_VALGRIND: Final = re.compile(r"(==|--)\d+\1")

_FORKING: Final = """
import asyncio, json, os, random, selectors, sys

class Seeded(random.Random):
    def __init__(self, seed=0):
        super().__init__(seed)

class Clock:
    now = 0.0

def time(loop):
    Clock.now += 2e-5
    return Clock.now

def select(selector, timeout=None, select=selectors.DefaultSelector.select):
    ready = select(selector, timeout and 0)
    if not ready and timeout:
        Clock.now += timeout
    return ready

random.Random = Seeded
asyncio.BaseEventLoop.time = time
selectors.DefaultSelector.select = select
from bayplan.cli.main import main

report = os.dup(1)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
first, *runs = json.loads(sys.argv[1])
main(first)
for arguments in runs:
    child = os.fork()
    if not child:
        os._exit(main(arguments))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.write(report, f"{child} {status}\\n".encode())
"""
"""Runs `bayplan bench` several times, each in a fork of one process that has imported everything: starting
Python takes more instructions than many runs. Prints the id and the exit status of each fork.

Generators without a seed get one, so that metrics sample the same attempts in every run: an attempt that is
measured takes several times as many instructions. The time of the loop does not depend on the machine, or the
loop would yield after a few pods instead of 64: every look at the clock takes 20 µs, and the loop does not
sleep until its next timer but puts its clock forward."""

_CACHEGRIND: Final = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One workload at one size on both sides. Field names are those of the JSON line."""

    workload: str
    nodes: int
    init_pods: int
    pods: int
    commit: str
    """The commit that this code is compared with; `before` means there."""
    cpu_us_per_pod_before: float | None = None
    cpu_us_per_pod: float | None = None
    """The least of all rounds; None if there were none."""
    cpu_ratio: float | None = None
    instructions_per_pod_before: int | None = None
    instructions_per_pod: int | None = None
    """None if valgrind is not installed."""
    instruction_ratio: float | None = None

    def as_json(self) -> str:
        return msgspec.json.encode(self).decode()


@contextmanager
def checkout(commit: str) -> Iterator[tuple[str, Path]]:
    """The short name of a commit, and a temporary folder with its source code.

    Raises:
        BenchError: this code is not in a git repository, or the commit is unknown.
    """
    name = _git("rev-parse", "--short", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}")
    with tempfile.TemporaryDirectory(prefix="bayplan-bench-") as folder:
        path = Path(folder, name)
        _git("worktree", "add", "--quiet", "--detach", str(path), name)
        try:
            yield name, path / "src"
        finally:
            _git("worktree", "remove", "--force", str(path))


def compare(
    workloads: Sequence[tuple[str, Sizes]],
    other: tuple[str, Path],
    options: Sequence[str] = (),
    *,
    rounds: int,
    progress: Progress = no_progress,
) -> Iterator[Comparison]:
    """Measures workloads on both sides; `options` are further options of `bayplan bench`.

    Raises:
        BenchError: a run failed.
    """
    commit, path = other
    counts = None
    if can_count_instructions():
        counts = _count_both((path, SOURCE), workloads, options, progress)
    for index, (name, sizes) in enumerate(workloads):
        result = Comparison(
            workload=name, nodes=sizes.nodes, init_pods=sizes.init_pods, pods=sizes.pods, commit=commit
        )
        if counts is not None:
            old, new = (side[index] for side in counts)
            result = msgspec.structs.replace(
                result,
                instructions_per_pod_before=old,
                instructions_per_pod=new,
                instruction_ratio=_ratio(new, old),
            )
        if rounds:
            taken: tuple[list[float], list[float]] = ([], [])
            for number in range(rounds):
                for times, source in zip(taken, (path, SOURCE), strict=True):
                    progress(f"{name}: rounds", number, rounds)
                    times.append(_measure(source, name, sizes, options).cpu_us_per_pod)
            before, now = map(min, taken)
            result = msgspec.structs.replace(
                result, cpu_us_per_pod_before=before, cpu_us_per_pod=now, cpu_ratio=_ratio(now, before)
            )
        progress("", 0, 0)
        yield result


def can_count_instructions() -> bool:
    return shutil.which("valgrind") is not None


def make_table(comparisons: Sequence[Comparison], commit: str) -> Table:
    """The comparisons as a table: one row per workload."""
    title = f"this code against {commit}: per pod, and as a multiple of {commit}"
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("workload", overflow="fold")
    for heading in ("nodes", "pods", f"CPU µs {commit}", "CPU µs", "ratio"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in (f"instructions {commit}", "instructions", "ratio"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in comparisons:
        table.add_row(
            one.workload,
            f"{one.nodes:,}",
            f"{one.pods:,}",
            *(_cell(value, ",.1f") for value in (one.cpu_us_per_pod_before, one.cpu_us_per_pod)),
            _cell(one.cpu_ratio, ".3f"),
            *(_cell(value, ",") for value in (one.instructions_per_pod_before, one.instructions_per_pod)),
            _cell(one.instruction_ratio, ".3f"),
        )
    return table


def bench_arguments(workload: str, sizes: Sizes, options: Sequence[str]) -> list[str]:
    """What measures one workload and prints a line of JSON."""
    counts = {"--nodes": sizes.nodes, "--init-pods": sizes.init_pods, "--pods": sizes.pods}
    return ["bench", workload, "--json", *(str(x) for pair in counts.items() for x in pair), *options]


def bench_command(workload: str, sizes: Sizes, options: Sequence[str]) -> list[str]:
    """The command that measures one workload in a process of its own."""
    # -P: the current folder may contain another bayplan.
    return [sys.executable, "-P", "-m", "bayplan.cli.main", *bench_arguments(workload, sizes, options)]


def _measure(source: Path, workload: str, sizes: Sizes, options: Sequence[str]) -> Measurement:
    command = bench_command(workload, sizes, options)
    ended = subprocess.run(command, env=_environment(source), capture_output=True, check=False)
    if ended.returncode:
        raise _failed(workload, source, ended.stderr.decode(errors="replace"))
    return msgspec.json.decode(ended.stdout, type=Measurement)


def _count_both(
    sources: tuple[Path, Path],
    workloads: Sequence[tuple[str, Sizes]],
    options: Sequence[str],
    progress: Progress,
) -> tuple[list[int], ...]:
    """Instructions per pod on both sides, which run at the same time: that does not change the counts."""
    done: list[None] = []

    def advance() -> None:
        done.append(None)
        progress("counting instructions", len(done), 4 * len(workloads))

    progress("counting instructions", 0, 4 * len(workloads))
    with ThreadPoolExecutor(len(sources)) as pool:
        return tuple(pool.map(lambda source: _count(source, workloads, options, advance), sources))


def _count(
    source: Path,
    workloads: Sequence[tuple[str, Sizes]],
    options: Sequence[str],
    advance: Callable[[], None],
) -> list[int]:
    """Instructions per pod of each workload, as the difference of two runs: the setup cancels out."""
    runs = []
    for name, sizes in workloads:
        if sizes.pods < 2:
            raise BenchError("counting instructions needs at least two pods")
        runs += [(name, sizes), (name, replace(sizes, pods=max(1, sizes.pods // SUBTRACTED)))]
    least = [(workloads[0][0], Sizes(nodes=1, init_pods=0, pods=1)), *runs]
    arguments = msgspec.json.encode([bench_arguments(*run, options) for run in least]).decode()
    # Under valgrind, compiling would take long.
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(source)], check=False)
    command = [*_CACHEGRIND, sys.executable, "-P", "-c", _FORKING, arguments]
    statuses: list[tuple[str, str]] = []
    with tempfile.TemporaryFile("w+", errors="replace") as messages:
        with subprocess.Popen(
            command, env=_environment(source), stdout=subprocess.PIPE, stderr=messages, text=True
        ) as running:
            assert running.stdout is not None
            for line in running.stdout:
                child, status = line.split()
                statuses.append((child, status))
                advance()
        messages.seek(0)
        text = messages.read()
    if len(statuses) < len(runs):
        raise _failed("counting instructions", source, text)
    found = {child: int(count.replace(",", "")) for child, count in _INSTRUCTIONS.findall(text)}
    counts = []
    for (name, _), (child, status) in zip(runs, statuses, strict=True):
        if status != "0" or child not in found:
            raise _failed(name, source, text)
        counts.append(found[child])
    pairs = zip(runs[::2], runs[1::2], counts[::2], counts[1::2], strict=True)
    return [(more - less) // (big.pods - small.pods) for (_, big), (_, small), more, less in pairs]


def _environment(source: Path) -> dict[str, str]:
    # Hashes of strings must not differ between the runs: they order sets, which changes the work. Threads of
    # NumPy's linear algebra, which nothing here uses, spin while they wait, and that would be counted.
    same = {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
    return {**os.environ, **same, "PYTHONPATH": str(source)}


def _failed(what: str, source: Path, messages: str) -> BenchError:
    lines = [line for line in messages.splitlines() if line and not _OF_VALGRIND.match(line)]
    return BenchError(f"{what}, with the code in {source}: {lines[-1] if lines else 'it printed no message'}")


def _git(*arguments: str) -> str:
    try:
        ended = subprocess.run(
            ["git", "-C", str(SOURCE), *arguments], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise BenchError(f"git cannot be run: {error.strerror or error}") from error
    if ended.returncode:
        problem = ended.stderr.strip() or "there is no such commit"
        raise BenchError(f"git {' '.join(arguments)}: {problem}")
    return ended.stdout.strip()


def _ratio(now: float, before: float) -> float | None:
    return round(now / before, 4) if before else None


def _cell(value: float | None, how: str) -> str:
    return "–" if value is None else format(value, how)
