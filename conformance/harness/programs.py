"""The programs that bayplan is compared with: built from `conformance/go.mod`, kept outside the tree.

    ${XDG_CACHE_HOME:-~/.cache}/bayplan/conformance/
        bin/     kube-apiserver, kube-scheduler and kubectl of the version that go.mod pins
        etcd/    Debian's etcd-server, unpacked, where there is no etcd on the PATH

`python -m conformance.harness.programs` builds what is missing and says where it is. A cold build takes
several minutes on two cores; it runs with low priority, and once for everybody on the machine.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MODULE: Final = Path(__file__).parents[1]
"""Where go.mod is."""
BUILT: Final = ("kube-apiserver", "kube-scheduler", "kubectl")
NICE: Final = ("nice", "-n", "10")


class MissingError(Exception):
    """What it takes to build or run the real programs is not on this machine."""


@dataclass(frozen=True, slots=True)
class Programs:
    """Where each program is."""

    kube_apiserver: Path
    kube_scheduler: Path
    kubectl: Path
    etcd: Path


def cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "bayplan" / "conformance"


def kubernetes_version() -> str:
    """The version that go.mod pins, as `v1.36.4`."""
    found = re.search(r"^require k8s\.io/kubernetes (v\S+)$", (MODULE / "go.mod").read_text(), re.MULTILINE)
    assert found is not None, "go.mod requires k8s.io/kubernetes"
    return found[1]


def obtain() -> Programs:
    """All programs, built or fetched where they are not there yet.

    Raises:
        MissingError: there is no Go, or no etcd to be had.
        subprocess.CalledProcessError: Go could not build them; it has said why.
    """
    cache = cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    with _only_one_builds(cache / "lock"):
        binaries = _build(cache / "bin")
        etcd = _etcd(cache / "etcd")
    apiserver, scheduler, kubectl = (binaries / name for name in BUILT)
    return Programs(apiserver, scheduler, kubectl, etcd)


@contextmanager
def _only_one_builds(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(directory: Path) -> Path:
    stamp, wanted = directory / "built-from", _fingerprint()
    if stamp.exists() and stamp.read_text() == wanted and all((directory / name).exists() for name in BUILT):
        return directory
    go = shutil.which("go")
    if go is None:
        raise MissingError("there is no Go on the PATH, so kube-apiserver cannot be built")
    version = kubernetes_version()
    print(f"building {', '.join(BUILT)} {version} (minutes when nothing is cached)", flush=True)
    directory.mkdir(parents=True, exist_ok=True)
    packages = [f"k8s.io/kubernetes/cmd/{name}" for name in BUILT]
    command = [*NICE, go, "build", "-buildvcs=false", "-ldflags", _linked(version), "-o", f"{directory}/"]
    subprocess.run([*command, *packages], cwd=MODULE, check=True)
    stamp.write_text(wanted)
    return directory


def _linked(version: str) -> str:
    """No symbols, which nobody looks at here; and the version that a module build does not know."""
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return " ".join(["-s", "-w", *(f"-X {package}.gitVersion={version}" for package in packages)])


def _fingerprint() -> str:
    parts = [(MODULE / name).read_bytes() for name in ("go.mod", "go.sum", "tools.go")]
    return hashlib.sha256(b"\0".join([*parts, _linked(kubernetes_version()).encode()])).hexdigest()


def _etcd(directory: Path) -> Path:
    installed = shutil.which("etcd")
    if installed is not None:
        return Path(installed)
    unpacked = directory / "usr/bin/etcd"
    if not unpacked.exists():
        if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
            raise MissingError("there is no etcd on the PATH, and no Debian tools to fetch etcd-server with")
        print("fetching Debian's etcd-server", flush=True)
        directory.mkdir(parents=True, exist_ok=True)
        try:
            subprocess.run(["apt-get", "download", "etcd-server"], cwd=directory, check=True)
        except subprocess.CalledProcessError as error:
            raise MissingError(
                "apt-get cannot download etcd-server; install etcd, or run apt-get update"
            ) from error
        for package in directory.glob("etcd-server_*.deb"):
            subprocess.run(["dpkg-deb", "-x", package, directory], check=True)
            package.unlink()
    return unpacked


def main() -> int:
    try:
        programs = obtain()
    except MissingError as error:
        print(error, file=sys.stderr)
        return 1
    for name in Programs.__slots__:
        print(getattr(programs, name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
