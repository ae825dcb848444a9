"""`python -m tests.fuzz`: runs targets for a time, one seed, or a saved input."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from tests.fuzz.oracle import MAX_CPU_SECONDS, FindingError
from tests.fuzz.running import Finding, make_input, run, run_input, work
from tests.fuzz.targets import TARGETS

FINDINGS: Final = Path("fuzz-findings")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--targets", default=",".join(TARGETS), help=f"of {', '.join(TARGETS)}; by commas")
    parser.add_argument("--first-seed", type=int, help="by default the time, so that no run repeats another")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--findings", type=Path, default=FINDINGS, help="where findings are saved")
    parser.add_argument("--seed", type=int, help="run this seed of one target, and show what is wrong")
    parser.add_argument("--show", action="store_true", help="with --seed: print the input as JSON")
    parser.add_argument("--input", type=Path, help="run the input of a saved finding")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        name, first, seconds = options.worker
        logging.getLogger().addHandler(logging.NullHandler())
        work(TARGETS[name], int(first), float(seconds))
        return 0
    if options.input:
        saved = msgspec.json.decode(options.input.read_bytes(), type=Finding)
        target = TARGETS[saved.target]
        return _run_one(saved.target, msgspec.convert(saved.input, target.input_type))
    if options.seed is not None:
        given = make_input(TARGETS[options.targets], options.seed)
        if options.show:
            print(msgspec.json.encode(given).decode())
        return _run_one(options.targets, given)
    return _run_many(options)


def _run_one(target: str, given: object) -> int:
    began = time.process_time()
    try:
        run_input(TARGETS[target], given, max_cpu=MAX_CPU_SECONDS)
    except FindingError as error:
        print(error)
        return 1
    print(f"nothing is wrong; {time.process_time() - began:.2f} s of CPU")
    return 0


def _run_many(options: argparse.Namespace) -> int:
    names = [name for name in options.targets.split(",") if name]
    first = int(time.time()) * 1000 if options.first_seed is None else options.first_seed
    print(f"first seed {first}, {options.minutes:g} minutes", flush=True)
    tally = run(names, 60 * options.minutes, first, options.findings, options.processes)
    for name in names:
        print(f"{name}: {tally.inputs[name]:,} inputs")
    for (name, signature), times in tally.repeated.most_common():
        print(f"{name}: {signature}: {times} times")
    print(f"{tally.inputs.total():,} inputs, {len(tally.findings)} different findings")
    return 1 if tally.findings else 0


if __name__ == "__main__":
    sys.exit(main())
