"""Lists what the image contains: a CycloneDX SBOM, or the licences as text.

    python tools/sbom.py [--licences]

Names and versions are the pins of `requirements/run.txt` for the image's Python; licences and dependencies
come from the metadata of the packages installed here. Nothing is downloaded. A package that is not installed
here, or in another version, is listed with a property that says so. The base image is not included.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from bayplan import __version__

ROOT: Final = Path(__file__).parents[1]
PINS: Final = ROOT / "requirements" / "run.txt"
DOCKERFILE: Final = ROOT / "deploy" / "Dockerfile"
UNKNOWN: Final = "unknown"

_NAMESPACE: Final = uuid.UUID("5c1f4a52-9a3e-4b0b-8f6e-0d1c6f1b2a77")
_SPDX: Final = {
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "Apache-2.0": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "MIT": "MIT",
    "MIT License": "MIT",
    "PSF-2.0": "PSF-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
"""Licences as packages name them without an SPDX expression. `BSD License` does not say which one; the
package that says only that, google-re2, has the one with three clauses."""


@dataclass(frozen=True, slots=True)
class Package:
    """A pinned package, and what its metadata says."""

    name: str
    version: str
    licence: str
    """An SPDX expression, or `unknown`."""
    metadata_version: str
    """The version whose metadata was read; empty: it is not installed here."""
    requires: tuple[str, ...] = ()

    @property
    def reference(self) -> str:
        return f"pkg:pypi/{self.name}@{self.version}"


def packages() -> list[Package]:
    """What the image installs, in the order of names."""
    environment = image_environment()
    pins = (Requirement(line.removesuffix(" \\")) for line in PINS.read_text().splitlines() if "==" in line)
    pins = (pin for pin in pins if pin.marker is None or pin.marker.evaluate(environment))
    return [_package(pin, environment) for pin in sorted(pins, key=lambda pin: canonicalize_name(pin.name))]


def image_environment() -> dict[str, str]:
    """The markers of the image: Linux, and the Python of `deploy/Dockerfile`."""
    (minor,) = set(re.findall(r"^FROM python:(\d+\.\d+)", DOCKERFILE.read_text(), re.MULTILINE))
    return {
        "python_version": minor,
        "python_full_version": f"{minor}.0",
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "extra": "",
    }


def _package(pin: Requirement, environment: dict[str, str]) -> Package:
    name = canonicalize_name(pin.name)
    version = str(pin.specifier).removeprefix("==")
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return Package(name, version, UNKNOWN, "")
    required = (Requirement(line) for line in found.requires or ())
    needed = {
        canonicalize_name(one.name)
        for one in required
        if one.marker is None or one.marker.evaluate(environment)
    }
    return Package(name, version, licence_of(found), found.version, tuple(sorted(needed)))


def licence_of(found: Distribution) -> str:
    """The licence of a package as an SPDX expression, or `unknown`."""
    metadata: Any = found.metadata
    if metadata.get("License-Expression"):
        return str(metadata["License-Expression"])
    classifiers = (
        line.split(" :: ")[-1] for line in metadata.get_all("Classifier") or () if "License ::" in line
    )
    named = [metadata.get("License") or "", *classifiers]
    return next((_SPDX[name] for name in named if name in _SPDX), UNKNOWN)


def sbom(found: list[Package]) -> dict[str, Any]:
    """A CycloneDX 1.6 document. It depends on nothing but the pins and the metadata."""
    own = f"pkg:pypi/bayplan@{__version__}"
    references = {package.name: package.reference for package in found}
    direct = {canonicalize_name(Requirement(line).name) for line in _own_requirements()}
    dependencies = [
        {"ref": own, "dependsOn": sorted(references[name] for name in direct & references.keys())}
    ]
    for package in found:
        needed = sorted(references[name] for name in package.requires if name in references)
        dependencies.append({"ref": package.reference, "dependsOn": needed})
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, ' '.join(sorted(references.values())) + own)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "bayplan",
                "version": __version__,
                "purl": own,
                "licenses": [{"expression": "Apache-2.0"}],
            }
        },
        "components": [_component(package) for package in found],
        "dependencies": dependencies,
    }


def _own_requirements() -> Iterator[str]:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    yield from project["dependencies"]


def _component(package: Package) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": package.reference,
        "name": package.name,
        "version": package.version,
        "purl": package.reference,
    }
    if package.licence != UNKNOWN:
        component["licenses"] = [{"expression": package.licence}]
    if package.metadata_version != package.version:
        read = package.metadata_version or "none"
        component["properties"] = [{"name": "bayplan:metadata-read-from-version", "value": read}]
    return component


def licences(found: list[Package]) -> str:
    """One line for each package."""
    rows = [(package.name, package.version, package.licence) for package in found]
    width, versions = (max(len(row[i]) for row in rows) for i in (0, 1))
    return "".join(f"{name:{width}}  {version:{versions}}  {licence}\n" for name, version, licence in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description="List what the image contains.")
    parser.add_argument("--licences", action="store_true", help="print the licences as text")
    arguments = parser.parse_args()
    found = packages()
    print(licences(found) if arguments.licences else f"{json.dumps(sbom(found), indent=1)}\n", end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
