"""Is everything that pyproject.toml asks for pinned in requirements/? Where it is not, says what to do."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
_PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]+\])?==(\S+)", re.MULTILINE)


def _expanded(extra: str, extras: dict[str, list[str]]) -> Iterator[str]:
    """The packages of an extra, and those of our extras that it names."""
    for text in extras[extra]:
        requirement = Requirement(text)
        if requirement.name != "bayplan":
            yield text
        for other in requirement.extras if requirement.name == "bayplan" else ():
            yield from _expanded(other, extras)


def problems() -> Iterator[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    run = project["project"]["dependencies"]
    build = project["build-system"]["requires"]
    extras = project["project"]["optional-dependencies"]
    dev = list(_expanded("dev", extras))
    for name, wanted in (
        ("run.txt", run),
        ("fleet.txt", [*run, *extras["fleet"]]),
        ("tracing.txt", [*run, *extras["tracing"]]),
        ("build.txt", build),
        ("dev.txt", [*run, *build, *dev]),
    ):
        text = (ROOT / "requirements" / name).read_text()
        # A package may be pinned several times, for different versions of Python.
        pins = [(canonicalize_name(package), version) for package, version in _PIN.findall(text)]
        for requirement in map(Requirement, wanted):
            name_wanted = canonicalize_name(requirement.name)
            versions = [version for package, version in pins if package == name_wanted]
            if not versions:
                yield f"requirements/{name} does not pin {requirement}"
            elif not all(requirement.specifier.contains(version, prereleases=True) for version in versions):
                yield f"requirements/{name} pins {', '.join(versions)}, and not {requirement}"


if __name__ == "__main__":
    found = list(problems())
    for problem in found:
        print(f"{problem}: run make lock", file=sys.stderr)
    raise SystemExit(bool(found))
