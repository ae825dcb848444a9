"""Makes the krew package of `kubectl bayplan`: an archive, and the manifest that names it by its hash.

    python tools/krew.py --to DIRECTORY [--base-url URL]

krew installs one executable. bayplan is a Python package with compiled dependencies, so the executable is
a script that runs the release of the same version with uv or pipx (`deploy/krew/kubectl-bayplan.in`). The
archive is the same bytes every time, so the hash in a published manifest can be checked. Without `--base-url`
the manifest has an address that does not exist; `kubectl krew install --manifest=… --archive=…` ignores it.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import sys
import tarfile
from pathlib import Path
from typing import Any, Final

import yaml

from bayplan import __version__

ROOT: Final = Path(__file__).parents[1]
SCRIPT: Final = ROOT / "deploy" / "krew" / "kubectl-bayplan.in"
EXECUTABLE: Final = "kubectl-bayplan"
NOT_PUBLISHED: Final = "https://bayplan.invalid"

_DESCRIPTION: Final = """\
Explains why a pod is pending or on its node, what preemption would do, what happens if nodes are drained or
added, and how many more pods fit. Decisions equal kube-scheduler's; nothing is written to the cluster.
"""
_CAVEATS: Final = "Needs uv or pipx on the PATH, and Python 3.11 or later.\n"


def archive() -> bytes:
    """The archive with the script and the licence."""
    script = SCRIPT.read_text().replace("@VERSION@", __version__).encode()
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.USTAR_FORMAT) as files:
        for name, data, mode in (
            (EXECUTABLE, script, 0o755),
            ("LICENSE", (ROOT / "LICENSE").read_bytes(), 0o644),
        ):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), mode
            files.addfile(member, io.BytesIO(data))
    return gzip.compress(content.getvalue(), mtime=0)


def archive_name() -> str:
    return f"kubectl-bayplan-{__version__}.tar.gz"


def manifest(content: bytes, base_url: str = NOT_PUBLISHED) -> dict[str, Any]:
    """The manifest for an archive, as krew-index has it."""
    unix = {"matchExpressions": [{"key": "os", "operator": "In", "values": ["linux", "darwin"]}]}
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "bayplan"},
        "spec": {
            "version": f"v{__version__}",
            "shortDescription": "Explain scheduling decisions and ask what if",
            "description": _DESCRIPTION,
            "caveats": _CAVEATS,
            "platforms": [
                {
                    "selector": unix,
                    "uri": f"{base_url.rstrip('/')}/{archive_name()}",
                    "sha256": hashlib.sha256(content).hexdigest(),
                    "bin": EXECUTABLE,
                    "files": [{"from": name, "to": "."} for name in (EXECUTABLE, "LICENSE")],
                }
            ],
        },
    }


def write(directory: Path, base_url: str = NOT_PUBLISHED) -> list[Path]:
    """Writes both files, and returns their paths."""
    content = archive()
    paths = [directory / archive_name(), directory / "krew.yaml"]
    paths[0].write_bytes(content)
    paths[1].write_text(yaml.safe_dump(manifest(content, base_url), sort_keys=False), encoding="utf-8")
    return paths


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the krew package of kubectl bayplan.")
    parser.add_argument("--to", type=Path, required=True, metavar="DIRECTORY")
    parser.add_argument("--base-url", default=NOT_PUBLISHED, metavar="URL", help="where the archive will be")
    arguments = parser.parse_args()
    print(*write(arguments.to, arguments.base_url), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
