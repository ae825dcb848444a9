"""Searches for an input for which bayplan and Kubernetes' own code differ."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from conformance.harness.programs import MissingError, obtain_oracle
from conformance.oracle.comparing import (
    allocation_differences,
    selector_differences,
    wrong_type_differences,
)

_SEARCHES: Final = {"cel": selector_differences, "allocations": allocation_differences}
_AT_ONCE: Final = 500


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance.oracle", description=__doc__)
    parser.add_argument("--inputs", type=int, default=1000, help="of each kind")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--only", choices=_SEARCHES)
    options = parser.parse_args()
    try:
        oracle = obtain_oracle()
    except MissingError as error:
        print(error)
        return 0
    different = 0
    if options.only in (None, "cel"):
        for difference in wrong_type_differences(oracle):
            different += 1
            print(f"cel, {difference}", flush=True)
    end = options.first_seed + options.inputs
    for kind in [options.only] if options.only else _SEARCHES:
        for first in range(options.first_seed, end, _AT_ONCE):
            for difference in _SEARCHES[kind](oracle, range(first, min(first + _AT_ONCE, end))):
                different += 1
                print(f"{kind}, {difference}", flush=True)
    print(f"{options.inputs} inputs of each kind: {different} differences")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
