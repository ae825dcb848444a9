"""`make conformance`: builds the real programs if they are missing, then runs the tests in this directory.

Without Go or etcd it prints a message and exits with status 0: you do not need Go to work on bayplan.
`--release` chooses the Kubernetes release, `--short` a few files of tests; other arguments are pytest's:
`-n 0` runs one test after the other.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

import pytest

from conformance.harness.programs import DEFAULT_RELEASE, RELEASES, MissingError, obtain

HERE: Final = Path(__file__).parent
SHORT: Final = ("test_harness.py", "test_side_by_side.py", "test_devices.py", "test_differential.py")
"""The tests of every change with releases other than the default one."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance", add_help=False)
    parser.add_argument("--release", choices=RELEASES, default=DEFAULT_RELEASE)
    parser.add_argument("--short", action="store_true")
    options, chosen = parser.parse_known_args()
    try:
        obtain(options.release)
    except MissingError as error:
        print(f"conformance with the real API server and kube-scheduler: SKIPPED, {error}")
        return 0
    files = [str(HERE / name) for name in SHORT] if options.short else [str(HERE)]
    if any(Path(word.partition("::")[0]).exists() for word in chosen):
        files = []
    # Two at a time, each with a control plane of its own: they often wait. Those of a file share one.
    workers = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
    return pytest.main([*workers, "-v", "--release", options.release, *files, *chosen])


if __name__ == "__main__":
    sys.exit(main())
