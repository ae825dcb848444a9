"""Running many seeds: one worker process a slice, watched from outside.

A worker prints which seed it begins, so that the parent can report what a worker was doing
that was killed by a signal, ran out of memory or hangs. After a finding it continues with the next seed.
"""

from __future__ import annotations

import os
import random
import resource
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.fuzz.oracle import MAX_CPU_SECONDS, FindingError, checked
from tests.fuzz.targets import TARGETS, Target

SLICE_SECONDS: Final = 20.0
"""A worker runs one target for this time; then another target runs."""
HANG_CPU_SECONDS: Final = 60.0
"""A worker that spends this much CPU on one input is ended by SIGPROF. CPU, because a busy machine makes
everything slow and is no finding."""
HANG_SECONDS: Final = 900.0
"""After this time with one input a worker is killed: it waits for something that does not come."""
MEMORY_BYTES: Final = 4 << 30
"""Of address space: an input that needs more is a finding."""
REPOSITORY: Final = Path(__file__).parents[2]


class Finding(msgspec.Struct, frozen=True):
    """What was found, with all it takes to see it again."""

    target: str
    seed: int
    signature: str
    message: str
    input: Any = None
    """As JSON. None if the worker could not report it: then the seed makes it."""


@dataclass
class Tally:
    """What came of a run."""

    inputs: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    repeated: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often each finding was made, by target and signature."""

    def add(self, finding: Finding) -> bool:
        """False if another finding has the same signature."""
        key = (finding.target, finding.signature)
        self.repeated[key] += 1
        if self.repeated[key] > 1:
            return False
        self.findings.append(finding)
        return True


def make_input(target: Target, seed: int) -> Any:
    return target.make(random.Random(f"{target.name} {seed}"))


def run_seed(target: Target, seed: int, *, max_cpu: float | None) -> None:
    """Raises: FindingError: with this seed something is wrong."""
    run_input(target, make_input(target, seed), max_cpu=max_cpu)


def run_input(target: Target, given: Any, *, max_cpu: float | None) -> None:
    """Raises: FindingError: with this input something is wrong."""
    with checked(max_cpu=max_cpu):
        target.run(given)


# The worker


def work(target: Target, first: int, seconds: float) -> None:
    """Runs seeds for this time, and reports each on standard output."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    # What is fuzzed may print; only the parent reads this.
    output = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    end, seed = time.monotonic() + seconds, first
    while time.monotonic() < end:
        output.write(b"%d\n" % seed)
        signal.setitimer(signal.ITIMER_PROF, HANG_CPU_SECONDS)
        given = make_input(target, seed)
        try:
            run_input(target, given, max_cpu=MAX_CPU_SECONDS)
        except FindingError as error:
            as_json = msgspec.to_builtins(given)
            output.write(
                msgspec.json.encode(Finding(target.name, seed, error.signature, str(error), as_json)) + b"\n"
            )
        seed += 1


# The parent


def run(targets: list[str], seconds: float, first: int, directory: Path, processes: int) -> Tally:
    """Runs the targets in turns, several at a time, until the time is over."""
    tally, end = Tally(), time.monotonic() + seconds
    turns = _turns(targets, first, end)
    workers: list[_Worker] = []
    while True:
        while len(workers) < processes and (turn := next(turns, None)) is not None:
            workers.append(_Worker(*turn))
        if not workers:
            return tally
        select.select([worker.output for worker in workers], [], [], 1.0)
        for worker in list(workers):
            for finding in worker.read(tally):
                if tally.add(finding):
                    report(finding, save(finding, directory))
            if worker.ended:
                workers.remove(worker)


def _turns(targets: list[str], first: int, end: float) -> Iterator[tuple[str, int, float]]:
    """Target, first seed and seconds of each worker. No two of them run the same seed."""
    number = 0
    while (left := end - time.monotonic()) > 1:
        target = targets[number % len(targets)]
        yield target, first + 1_000_000 * (number // len(targets)), min(SLICE_SECONDS, left)
        number += 1


class _Worker:
    def __init__(self, target: str, first: int, seconds: float) -> None:
        self._target = target
        self._seed = first
        self._last_output = time.monotonic()
        self._rest = b""
        command = [sys.executable, "-m", "tests.fuzz", "--worker", target, str(first), str(seconds)]
        self._process = subprocess.Popen(
            command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self.output = self._process.stdout
        self._errors = self._process.stderr
        os.set_blocking(self.output.fileno(), False)
        os.set_blocking(self._errors.fileno(), False)
        self._stderr = b""
        self.ended = False

    def read(self, tally: Tally) -> Iterator[Finding]:
        """Its findings since the last call; detects when it has died or hangs."""
        self._stderr = (self._stderr + (self._errors.read() or b""))[-4000:]
        data: bytes | None = self.output.read()
        if data:
            self._last_output = time.monotonic()
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                if line.isdigit():
                    self._seed = int(line)
                    tally.inputs[self._target] += 1
                else:
                    yield msgspec.json.decode(line, type=Finding)
        elif data == b"":
            yield from self._end(self._process.wait())
        elif time.monotonic() - self._last_output > HANG_SECONDS:
            self._process.kill()
            self._process.wait()
            yield self._dead("waits", f"no end after {HANG_SECONDS:.0f} s")
            self._close()

    def _end(self, status: int) -> Iterator[Finding]:
        if status == -signal.SIGPROF:
            yield self._dead("hangs", f"no end after {HANG_CPU_SECONDS:.0f} s of CPU")
        elif status:
            errors = self._stderr.decode(errors="replace")
            yield self._dead(
                f"worker ended with {status}", f"the process ended with status {status}:\n{errors}"
            )
        self._close()

    def _close(self) -> None:
        self.ended = True
        self.output.close()
        self._errors.close()

    def _dead(self, signature: str, message: str) -> Finding:
        return Finding(self._target, self._seed, signature, message)


def save(finding: Finding, directory: Path) -> Path:
    """Writes a finding to a file of its own."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"{finding.target}-{finding.seed}.json"
    if finding.input is None:
        given = msgspec.to_builtins(make_input(TARGETS[finding.target], finding.seed))
        finding = msgspec.structs.replace(finding, input=given)
    file.write_bytes(msgspec.json.encode(finding))
    return file


def report(finding: Finding, file: Path) -> None:
    last = finding.message.strip().splitlines()[-1][:300]
    print(f"{finding.target}, seed {finding.seed}: {finding.signature}: {last}")
    print(f"    python -m tests.fuzz --input {file}", flush=True)
