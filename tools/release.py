"""`make release`: build wheel and sdist, then use each from a fresh virtual environment.

A wheel that lacks a data file or a dependency works in every checkout and nowhere else, so both archives
are installed as a user would install them, outside the repository, and the commands of the README are run.
Nothing is uploaded and nothing is tagged: CONTRIBUTING.md has the steps around this one.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
DIST: Final = ROOT / "dist"


def main() -> int:
    shutil.rmtree(DIST, ignore_errors=True)
    _run(sys.executable, "-m", "build", "--outdir", DIST, ROOT)
    archives = sorted(DIST.iterdir())
    _run(sys.executable, "-m", "twine", "check", "--strict", *archives)
    for archive in archives:
        with tempfile.TemporaryDirectory(prefix="bayplan-release-") as directory:
            _try(archive, Path(directory))
    print("Checked in fresh virtual environments:", *(archive.name for archive in archives))
    return 0


def _try(archive: Path, directory: Path) -> None:
    """Installs one archive and runs what a new user runs first."""
    _run(sys.executable, "-m", "venv", directory / "venv")
    python, bayplan = directory / "venv/bin/python", directory / "venv/bin/bayplan"
    _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", archive)
    _run(python, "-m", "pip", "check", "--disable-pip-version-check")
    version = _run(bayplan, "--version", cwd=directory).removeprefix("bayplan ")
    if version not in archive.name:
        raise SystemExit(f"{archive.name} installs bayplan {version}")
    _run(bayplan, "decide", ROOT / "examples/cluster.yaml", cwd=directory)
    _run(bayplan, "config", "show", ROOT / "examples/pack.yaml", cwd=directory)
    tour = [word for file in sorted((ROOT / "examples/tour").glob("*.yaml")) for word in ("-f", file)]
    _run(bayplan, "up", "--nodes", "12", "--exit-when-idle", "always", *tour, cwd=directory)


def _run(*command: str | Path, cwd: Path | None = None) -> str:
    """Runs one step, shows its output only when it fails, and returns what it printed."""
    print("$", *command, flush=True)
    ended = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if ended.returncode != 0:
        print(ended.stdout, flush=True)
        raise SystemExit(f"failed with status {ended.returncode}: {' '.join(map(str, command))}")
    return ended.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
