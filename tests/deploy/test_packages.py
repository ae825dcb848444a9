"""What a release consists of besides wheel and sdist: manual page, SBOM, licences, krew package."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from importlib.metadata import Distribution
from pathlib import Path

import click
import pytest
import yaml

from bayplan import __version__
from bayplan.cli.main import COMMANDS
from tools import krew, release, sbom
from tools.man import manual_page


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from commands(below, f"{path} {name}")


def test_the_manual_page_has_every_command_and_option() -> None:
    page = manual_page().replace("\\-", "-")
    sections = dict(re.findall(r'^\.SS "(.*?)"\n(.*?)(?=^\.S[SH])', page, re.DOTALL | re.MULTILINE))
    for name in COMMANDS:
        for path, command in commands(COMMANDS[name].load(), f"bayplan {name}"):
            options = {flag for one in command.params if isinstance(one, click.Option) for flag in one.opts}
            assert {flag for flag in options - {"--help"} if flag not in sections[path]} == set(), path


@pytest.mark.skipif(shutil.which("groff") is None, reason="there is no groff on the PATH")
def test_the_manual_page_is_valid(tmp_path: Path) -> None:
    (tmp_path / "bayplan.1").write_text(manual_page())
    command = ["groff", "-man", "-ww", "-Kutf8", "-Tutf8", "bayplan.1"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ended.stderr == ""
    assert "BAYPLAN(1)" in ended.stdout


def test_the_sbom_lists_what_the_image_installs() -> None:
    found = sbom.packages()
    text = sbom.PINS.read_text()
    assert {f"{one.name}=={one.version}" for one in found} <= set(
        re.findall(r"^\S+==\S+", text, re.MULTILINE)
    )
    assert len({one.name for one in found}) == len(found), "markers choose one of several versions"
    assert "numpy" in {one.name for one in found}
    assert [one.name for one in found if one.licence == sbom.UNKNOWN] == []
    document = sbom.sbom(found)
    references = {one["bom-ref"] for one in document["components"]}
    graph = {one["ref"]: one["dependsOn"] for one in document["dependencies"]}
    assert set(graph) == references | {f"pkg:pypi/bayplan@{__version__}"}
    assert {one for needed in graph.values() for one in needed} == references, (
        "nothing is there for no reason"
    )
    assert sbom.sbom(found) == document
    assert re.search(r"^click +\S+ +BSD-3-Clause$", sbom.licences(found), re.MULTILINE)


def test_the_sbom_follows_the_schema_of_cyclonedx() -> None:
    """The rules of bom-1.6.schema.json for the fields that it uses; the schema allows no others."""
    document = sbom.sbom(sbom.packages())
    assert set(document) <= {
        "bomFormat", "specVersion", "serialNumber", "version", "metadata", "components", "dependencies",
    }  # fmt: skip
    assert (document["bomFormat"], document["specVersion"], document["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", document["serialNumber"])
    assert set(document["metadata"]) == {"component"}
    components = [document["metadata"]["component"], *document["components"]]
    allowed = {"type", "bom-ref", "name", "version", "purl", "licenses", "properties"}
    for one in components:
        assert {"type", "name"} <= set(one) <= allowed
        assert one["type"] in ("application", "library")
        assert [set(licence) for licence in one.get("licenses", ())] in ([], [{"expression"}])
        assert all(set(entry) == {"name", "value"} for entry in one.get("properties", ()))
    assert len({one["bom-ref"] for one in components}) == len(components)
    for one in document["dependencies"]:
        assert set(one) == {"ref", "dependsOn"}
        assert len(set(one["dependsOn"])) == len(one["dependsOn"])


class Described(Distribution):
    """A package with this metadata."""

    def __init__(self, text: str) -> None:
        self._text = text

    def read_text(self, filename: str) -> str | None:
        return self._text if filename == "METADATA" else None

    def locate_file(self, path: str | os.PathLike[str]) -> Path:
        return Path(path)


@pytest.mark.parametrize(
    ("metadata", "licence"),
    [
        ("License-Expression: MIT AND Zlib\nLicense: other\n", "MIT AND Zlib"),
        ("License: Apache 2.0\n", "Apache-2.0"),
        ("License: see file\nClassifier: License :: OSI Approved :: MIT License\n", "MIT"),
        ("License: my own\n", sbom.UNKNOWN),
    ],
    ids=["an SPDX expression", "a name", "a classifier", "something else"],
)
def test_licences(metadata: str, licence: str) -> None:
    assert sbom.licence_of(Described(f"Metadata-Version: 2.4\nName: x\nVersion: 1\n{metadata}")) == licence


def test_the_krew_package(tmp_path: Path) -> None:
    archive, manifest = krew.write(tmp_path, "https://example.com/v1/")
    plugin = yaml.safe_load(manifest.read_text())
    (platform,) = plugin["spec"]["platforms"]
    assert plugin["spec"]["version"] == f"v{__version__}"
    assert platform["uri"] == f"https://example.com/v1/{archive.name}"
    assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert krew.archive() == archive.read_bytes(), "it is the same every time"
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(archive.read_bytes()))) as files:
        assert {one.name for one in files} == {one["from"] for one in platform["files"]}
        assert files.getmember(platform["bin"]).mode == 0o755
        files.extractall(tmp_path, filter="data")
    shown = plugin["spec"]["shortDescription"]
    assert len(shown) <= 50, "krew-index asks for at most 50 characters"
    assert shown.isprintable()


def test_the_krew_manifest_follows_the_rules_of_krew(tmp_path: Path) -> None:
    """Those that krew checks when it reads a manifest."""
    plugin = yaml.safe_load(krew.write(tmp_path)[1].read_text())
    assert plugin["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert (plugin["kind"], plugin["metadata"]["name"]) == ("Plugin", "bayplan")
    assert re.fullmatch(r"v\d+\.\d+\.\d+(-[\w.]+)?", plugin["spec"]["version"]), "a semantic version"
    (platform,) = plugin["spec"]["platforms"]
    assert re.fullmatch(r"[0-9a-f]{64}", platform["sha256"])
    assert platform["uri"].endswith(".tar.gz"), "krew unpacks by the name"
    assert all(one["from"] and one["to"] for one in platform["files"])
    assert "LICENSE" in {one["from"] for one in platform["files"]}, "krew-index asks for it"
    (expression,) = platform["selector"]["matchExpressions"]
    assert (expression["key"], expression["operator"]) == ("os", "In")


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("uvx", f"--quiet --from bayplan=={__version__} kubectl-bayplan explain pod a b"),
        ("pipx", f"run --quiet --spec bayplan=={__version__} kubectl-bayplan explain pod a b"),
        ("other", None),
    ],
)
def test_the_krew_script_runs_the_same_version(tool: str, arguments: str | None, tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(krew.archive())) as files:
        files.extractall(tmp_path, filter="data")
    directory = tmp_path / "bin"
    directory.mkdir()
    (directory / tool).write_text('#!/bin/sh\necho "$@"\n')
    (directory / tool).chmod(0o755)
    command = ["/bin/sh", str(tmp_path / krew.EXECUTABLE), "explain", "pod", "a b"]
    ended = subprocess.run(command, env={"PATH": str(directory)}, capture_output=True, text=True, check=False)
    if arguments is None:
        assert (ended.returncode, "needs uv or pipx" in ended.stderr) == (2, True)
    else:
        assert (ended.returncode, ended.stdout.strip()) == (0, arguments)


def test_a_release_has_all_of_them(tmp_path: Path) -> None:
    written = release._write_companions(tmp_path)
    assert [path.name for path in written] == [
        "bayplan.1", "bayplan.cdx.json", "bayplan.licences.txt", krew.archive_name(), "krew.yaml",
    ]  # fmt: skip
    assert all(path.stat().st_size for path in written)
