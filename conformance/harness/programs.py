"""The programs that bayplan is compared with: built from our go.mod files, outside the tree.

    ${XDG_CACHE_HOME:-~/.cache}/bayplan/conformance/
        bin/            kube-apiserver, kube-controller-manager, kube-scheduler, kubectl and e2e.test of the
                        version that go.mod pins, the etcd of etcd/go.mod, the helm of helm/go.mod, the
                        descheduler of descheduler/go.mod, and oracle and promrules, which are ours
        bin/v1.37.1/    the same without e2e.test, of the version that v1.37/go.mod pins
        etcd/           Debian's etcd-server, unpacked, where there is no etcd on the PATH

`python -m conformance.harness.programs [1.36|1.37]` builds what is missing and prints the paths. A cold build
takes several minutes on two cores; it runs with low priority, and once for all users of the machine.
"""

from __future__ import annotations

import argparse
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

HERE: Final = Path(__file__).parents[1]
NICE: Final = ("nice", "-n", "10")

DEFAULT_RELEASE: Final = "1.36"
RELEASES: Final = (DEFAULT_RELEASE, "1.37")
"""The Kubernetes releases that there is a go.mod for."""


@dataclass(frozen=True, slots=True)
class Module:
    """A go.mod of this project, and what is built from it: name of the program, package.

    The package of a program of our own starts with `./`. A program whose name ends in `.test` has the tests
    of its package.
    """

    directory: Path
    built: dict[str, str]
    flags: str = "-s -w"
    """For the linker: no symbols."""

    def fingerprint(self) -> str:
        names = ("go.mod", "go.sum", "tools.go")
        own = [self.directory / package for package in self.built.values() if package.startswith("./")]
        files = [self.directory / name for name in names] + sorted(
            file for folder in own for file in folder.glob("*.go")
        )
        parts = [file.read_bytes() for file in files]
        return hashlib.sha256(b"\0".join([*parts, self.flags.encode()])).hexdigest()


class MissingError(Exception):
    """A requirement for building or running the real programs is missing."""


@dataclass(frozen=True, slots=True)
class Programs:
    """Where each program of a Kubernetes release is."""

    release: str
    """As `1.36`."""
    kube_apiserver: Path
    kube_controller_manager: Path
    kube_scheduler: Path
    kubectl: Path
    e2e_test: Path | None
    """Kubernetes' end-to-end tests; only of the default release, because they take long to build."""
    etcd: Path
    streaming_etcd: Path
    """A newer one, with which the API server offers lists as streams."""


def cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "bayplan" / "conformance"


def kubernetes_version(release: str = DEFAULT_RELEASE) -> str:
    """The version that the go.mod of a release pins, as `v1.36.4`."""
    text = (module_directory(release) / "go.mod").read_text()
    found = re.search(r"^require k8s\.io/kubernetes (v\S+)$", text, re.MULTILINE)
    assert found is not None, "go.mod requires k8s.io/kubernetes"
    return found[1]


def obtain(release: str = DEFAULT_RELEASE) -> Programs:
    """All programs of a release, built or fetched where they are not there yet.

    Raises:
        MissingError: there is no Go, or no etcd to be had.
        subprocess.CalledProcessError: Go could not build them; its output has the reason.
    """
    cache = cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    shared = cache / "bin"
    is_default = release == DEFAULT_RELEASE
    directory = shared if is_default else shared / kubernetes_version(release)
    with _only_one_builds(cache / "lock"):
        _build(_kubernetes(release), directory)
        _build(Module(HERE / "etcd", {"etcd": "go.etcd.io/etcd/server/v3"}), shared)
        plain_etcd = _debian_etcd(cache / "etcd")
    return Programs(
        release,
        directory / "kube-apiserver",
        directory / "kube-controller-manager",
        directory / "kube-scheduler",
        directory / "kubectl",
        directory / "e2e.test" if is_default else None,
        plain_etcd,
        shared / "etcd",
    )


def obtain_oracle() -> Path:
    """Our program that calls Kubernetes' own packages."""
    return _obtain("oracle", HERE, "./oracle")


def obtain_e2e(release: str = DEFAULT_RELEASE) -> Path:
    """Kubernetes' end-to-end tests. Those of other releases than the default one take minutes to build."""
    if release == DEFAULT_RELEASE:
        tests = obtain().e2e_test
        assert tests is not None
        return tests
    module = _kubernetes(release)
    directory = cache_directory() / "bin" / kubernetes_version(release)
    directory.mkdir(parents=True, exist_ok=True)
    tests_of = Module(module.directory / "e2e", {"e2e.test": "k8s.io/kubernetes/test/e2e"}, module.flags)
    with _only_one_builds(cache_directory() / "e2e-lock"):
        _build(tests_of, directory)
    return directory / "e2e.test"


def obtain_helm() -> Path:
    """The helm that renders our chart."""
    return _obtain("helm", HERE / "helm", "helm.sh/helm/v3/cmd/helm")


def obtain_promrules() -> Path:
    """Our program that calls Prometheus' own parsers."""
    return _obtain("promrules", HERE / "prometheus", "./promrules")


def obtain_descheduler() -> Path:
    """The real descheduler."""
    return _obtain("descheduler", HERE / "descheduler", "sigs.k8s.io/descheduler/cmd/descheduler")


def _obtain(name: str, directory: Path, package: str) -> Path:
    """One program, built where it is not there yet.

    Raises:
        MissingError: there is no Go.
        subprocess.CalledProcessError: Go could not build it; its output has the reason.
    """
    cache = cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    with _only_one_builds(cache / f"{name}-lock"):
        _build(Module(directory, {name: package}), cache / "bin")
    return cache / "bin" / name


def module_directory(release: str) -> Path:
    """Where the go.mod of a release is."""
    return HERE if release == DEFAULT_RELEASE else HERE / f"v{release}"


def _kubernetes(release: str) -> Module:
    """Kubernetes, with its version set, which a module build does not set."""
    version = kubernetes_version(release)
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    flags = " ".join(["-s", "-w", *(f"-X {package}.gitVersion={version}" for package in packages)])
    names = ("kube-apiserver", "kube-scheduler", "kubectl", "kube-controller-manager")
    built = {name: f"k8s.io/kubernetes/cmd/{name}" for name in names}
    if release == DEFAULT_RELEASE:
        built["e2e.test"] = "k8s.io/kubernetes/test/e2e"
    return Module(module_directory(release), built, flags)


@contextmanager
def _only_one_builds(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(module: Module, directory: Path) -> None:
    stamp, wanted = directory / f".{'-'.join(module.built)}", module.fingerprint()
    built = [directory / name for name in module.built]
    if stamp.exists() and stamp.read_text() == wanted and all(program.exists() for program in built):
        return
    go = shutil.which("go")
    if go is None:
        raise MissingError("there is no Go on the PATH, so Kubernetes cannot be built")
    directory.mkdir(parents=True, exist_ok=True)
    for program, package in zip(built, module.built.values(), strict=True):
        print(f"building {program.name} (minutes when nothing is cached)", flush=True)
        command: list[str | Path] = [
            *NICE,
            go,
            # Checking thousands of packages of others takes as long as compiling them.
            *(("test", "-c", "-vet=off") if program.suffix == ".test" else ("build",)),
            "-buildvcs=false",
            "-ldflags",
            module.flags,
            "-o",
            program,
            package,
        ]
        subprocess.run(command, cwd=module.directory, check=True)
    stamp.write_text(wanted)


def _debian_etcd(directory: Path) -> Path:
    installed = shutil.which("etcd")
    if installed is not None:
        return Path(installed)
    unpacked = directory / "usr/bin/etcd"
    if not unpacked.exists():
        if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
            raise MissingError("there is no etcd on the PATH, and no Debian tools to fetch etcd-server with")
        print("fetching Debian's etcd-server", flush=True)
        _download("etcd-server", directory)
        for package in directory.glob("etcd-server_*.deb"):
            subprocess.run(["dpkg-deb", "-x", package, directory], check=True)
            package.unlink()
    return unpacked


def _download(package: str, directory: Path) -> None:
    """Fetches a Debian package. Where this machine has no lists of packages, with lists of our own."""
    directory.mkdir(parents=True, exist_ok=True)
    if subprocess.run(["apt-get", "download", package], cwd=directory, check=False).returncode == 0:
        return
    state, kept = directory / "apt" / "state", directory / "apt" / "cache"
    for needed in (state / "lists" / "partial", kept / "archives" / "partial"):
        needed.mkdir(parents=True, exist_ok=True)
    places = {"State": state, "State::status": "/var/lib/dpkg/status", "Cache": kept}
    options = [word for name, place in places.items() for word in ("-o", f"Dir::{name}={place}")]
    try:
        for verb in (["update"], ["download", package]):
            subprocess.run(["apt-get", *options, *verb], cwd=directory, check=True)
    except subprocess.CalledProcessError as error:
        raise MissingError(f"apt-get cannot download {package}; install etcd") from error
    finally:
        shutil.rmtree(directory / "apt")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance.harness.programs")
    parser.add_argument("release", choices=RELEASES, default=DEFAULT_RELEASE, nargs="?")
    try:
        programs = obtain(parser.parse_args().release)
    except MissingError as error:
        print(error, file=sys.stderr)
        return 1
    for name in Programs.__slots__:
        if isinstance(path := getattr(programs, name), Path):
            print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
