"""Checks the types of the page's modules with `tsc --checkJs`, as `make check` does.

The page has no build step and bayplan needs no Node, so where there is no tsc this says that it is skipped.
`npm install --global typescript` installs it; `.ci/run` does where there is npm.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

MODULES: Final = Path(__file__).parents[1] / "src" / "bayplan" / "ui" / "static"
OPTIONS: Final = (
    *("--noEmit", "--allowJs", "--checkJs", "--strict"),
    *("--target", "es2022", "--module", "es2022", "--lib", "es2023,dom,dom.iterable"),
)


def main() -> int:
    tsc = shutil.which("tsc")
    if tsc is None:
        print("Types of the page: SKIPPED, there is no tsc on the PATH (npm install --global typescript)")
        return 0
    modules = sorted(map(str, MODULES.glob("*.js")))
    ended = subprocess.run([tsc, *OPTIONS, *modules])
    print(f"Types of the page: {len(modules)} modules, status {ended.returncode}")
    return ended.returncode


if __name__ == "__main__":
    sys.exit(main())
