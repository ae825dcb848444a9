"""`make conformance`: builds the real programs where they are missing, then runs the tests in this directory.

Where there is no Go, or no etcd to be had, it says so and ends well: nobody needs Go to work on bayplan.
Arguments are pytest's.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from conformance.harness.programs import MissingError, obtain


def main() -> int:
    try:
        obtain()
    except MissingError as error:
        print(f"conformance with the real API server and kube-scheduler: SKIPPED, {error}")
        return 0
    chosen = sys.argv[1:]
    here = (
        [] if any(Path(word.partition("::")[0]).exists() for word in chosen) else [str(Path(__file__).parent)]
    )
    # One after the other: the programs under test share the cores with a real control plane already.
    return pytest.main(["-p", "no:xdist", "-v", *here, *chosen])


if __name__ == "__main__":
    sys.exit(main())
