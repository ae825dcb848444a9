"""The fault run: a random workload, a failing API server, and a scheduler that may crash at any time.

A run is determined by its seed. First the cluster changes (`workload.py`) while requests fail, watches
break and the scheduler crashes now and then. Then all faults end, time passes until everything is quiescent,
and invariants are checked (`life.py`). It takes minutes of virtual and a fraction of a second of real
time, and can be repeated exactly:

    python -m tests.faults --seed 42 --trace

Without a seed many are run, in several processes; the failed ones are listed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.faults.faulty_cluster import Fault
from tests.faults.life import Report, play
from tests.faults.queues import WORLDS


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs seeds; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seed", type=int, help="play this one and say what was wrong")
    parser.add_argument("--trace", action="store_true", help="with --seed: show everything that happened")
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to play")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--groups", action="store_true", help="lives with pod groups of Kubernetes")
    parser.add_argument("--trees", action="store_true", help="the same with composite groups")
    parser.add_argument("--queues", choices=sorted(WORLDS), default="", help="lives with capacity queues")
    parser.add_argument("--late", action="store_true", help="name seeds with pods that were found late, too")
    options = parser.parse_args(arguments)
    kind = {"with_groups": options.groups, "with_trees": options.trees, "queues": options.queues}
    if options.seed is not None:
        return _play_one(options.seed, options.trace, partial(play, **kind))
    seeds = range(options.first, options.first + options.seeds)
    flags = f"--queues {options.queues}" if options.queues else ""
    flags = "--trees" if options.trees else "--groups" if options.groups else flags
    return _play_many(seeds, options.processes, options.late, partial(play, **kind), flags)


def _play_one(seed: int, trace: bool, play_seed: Callable[[int], Report]) -> int:
    report = play_seed(seed)
    if trace:
        print("\n".join(report.trace))
    for late in report.late:
        print(f"late: {late}")
    print("\n".join(report.problems) or "all is well")
    return bool(report.problems)


def _play_many(
    seeds: range, processes: int, tell_late: bool, play_seed: Callable[[int], Report], flags: str
) -> int:
    started, failed = time.monotonic(), 0
    totals: Counter[str] = Counter()
    faults: Counter[Fault] = Counter()
    with ProcessPoolExecutor(processes) as pool:
        playing = partial(_without_trace, play_seed)
        for report in pool.map(playing, seeds, chunksize=10):
            totals.update(crashes=report.crashes, bindings=report.bindings, decisions=report.decisions)
            totals["late"] += bool(report.late)
            if report.late and tell_late:
                print(f"seed {report.seed} is late: {report.late[0]}", flush=True)
            faults += report.faults
            if report.problems:
                failed += 1
                print(f"seed {report.seed}: {report.problems[0]}")
                command = " ".join(filter(None, (f"--seed {report.seed}", flags, "--trace")))
                print(f"    python -m tests.faults {command}", flush=True)
    seconds = time.monotonic() - started
    print(
        f"{len(seeds)} seeds in {seconds:.1f} s, {failed} failed, {totals['late']} had pods that were found "
        f"late: {totals['decisions']} decisions, "
        f"{totals['bindings']} bindings, {totals['crashes']} crashes, {faults.total()} faults"
    )
    return bool(failed)


def _without_trace(play_seed: Callable[[int], Report], seed: int) -> Report:
    report = play_seed(seed)
    report.trace = []
    return report


if __name__ == "__main__":
    sys.exit(main())
