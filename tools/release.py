"""`make release`: build wheel and sdist, use each from a fresh environment, and write what belongs to them.

A wheel that lacks a data file or a dependency works in every checkout and nowhere else, so both archives
are installed as a user would install them, outside the repository, and the commands of the README are run.
The wheel is also installed with pipx where there is one. Beside them `dist/` gets the manual page
(`tools/man.py`), SBOM and licences of the image (`tools/sbom.py`) and the krew package (`tools/krew.py`).
`BASE_URL` in the environment is the address under which the files will be published.

Nothing is uploaded and nothing is tagged: CONTRIBUTING.md has the steps around this one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final
from urllib.request import HTTPCookieProcessor, build_opener

# As a script this file has only its own folder on the path.
sys.path.insert(0, str(Path(__file__).parents[1]))

from tools import krew, sbom
from tools.man import manual_page

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
    _try_pipx(next(archive for archive in archives if archive.suffix == ".whl"))
    print("Checked in fresh virtual environments:", *(archive.name for archive in archives))
    print("Written beside them:", *(path.name for path in _write_companions(DIST)))
    return 0


def _write_companions(directory: Path) -> list[Path]:
    """Everything that is published with the archives."""
    found = sbom.packages()
    unknown = [package.name for package in found if package.licence == sbom.UNKNOWN]
    if unknown:
        raise SystemExit(f"the licences of these packages are unknown: {', '.join(unknown)}")
    contents = {
        "bayplan.1": manual_page(),
        "bayplan.cdx.json": json.dumps(sbom.sbom(found), indent=1) + "\n",
        "bayplan.licences.txt": sbom.licences(found),
    }
    paths = [directory / name for name in contents]
    for path, text in zip(paths, contents.values(), strict=True):
        path.write_text(text, encoding="utf-8")
    return [*paths, *krew.write(directory, os.environ.get("BASE_URL") or krew.NOT_PUBLISHED)]


def _try_pipx(wheel: Path) -> None:
    """Installs the wheel with pipx into directories of its own, and runs both of its commands."""
    pipx = shutil.which("pipx")
    if pipx is None:
        print("pipx: SKIPPED, there is no pipx on the PATH")
        return
    with tempfile.TemporaryDirectory(prefix="bayplan-pipx-") as directory:
        places = {"PIPX_HOME": f"{directory}/home", "PIPX_BIN_DIR": f"{directory}/bin"}
        _run(pipx, "install", wheel, environment=places)
        for command in ("bayplan", "kubectl-bayplan"):
            _run(f"{directory}/bin/{command}", "decide", ROOT / "examples/cluster.yaml", cwd=Path(directory))


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
    _try_page(bayplan, directory)


def _try_page(bayplan: Path, directory: Path) -> None:
    """Logs in to the page, and loads the page and every module that it names."""
    link = directory / "link"
    command: list[str | Path] = [bayplan, "ui", "-f", ROOT / "examples/cluster.yaml", "--link-file", link]
    print("$", *command, flush=True)
    with subprocess.Popen(command, cwd=directory, stdout=subprocess.DEVNULL) as process:
        try:
            while not link.exists():
                if process.poll() is not None:
                    raise SystemExit(f"bayplan ui ended with status {process.returncode}")
                time.sleep(0.1)
            browser = build_opener(HTTPCookieProcessor())
            address = link.read_text(encoding="utf-8").strip()
            browser.open(address)
            pages, root = [""], address.partition("login?")[0]
            for name in pages:
                text = browser.open(root + name).read().decode()
                found = re.findall(r'"(static/[\w.]+)"', text) + re.findall(r'from "\./([\w.]+)"', text)
                names = [one if "/" in one else f"static/{one}" for one in found]
                pages += [one for one in dict.fromkeys(names) if one not in pages]
        finally:
            process.terminate()


def _run(*command: str | Path, cwd: Path | None = None, environment: dict[str, str] | None = None) -> str:
    """Runs one step, shows its output only when it fails, and returns what it printed."""
    print("$", *command, flush=True)
    variables = os.environ | (environment or {})
    ended = subprocess.run(
        command, cwd=cwd, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if ended.returncode != 0:
        print(ended.stdout, flush=True)
        raise SystemExit(f"failed with status {ended.returncode}: {' '.join(map(str, command))}")
    return ended.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
