"""Installs are reproducible: everything is pinned with hashes, and from no index in particular."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from tools import audit, locked

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "requirements").glob("*.txt"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_line_is_a_pin_or_a_hash(file: Path) -> None:
    """No option, so no index: where packages come from is up to the user."""
    pin = r"[a-z0-9.-]+(\[[a-z0-9,-]+\])?==[^\s;]+( ; [^\\]+)? \\"
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    assert [
        line for line in lines if not re.fullmatch(rf"{pin}|    --hash=sha256:[0-9a-f]{{64}}( \\)?", line)
    ] == []
    assert sum("==" in line for line in lines) >= 5


def test_every_requirement_is_pinned() -> None:
    assert list(locked.problems()) == [], "run make lock"


def test_pins_have_the_extras_that_others_require() -> None:
    """Else pip takes the newest version of `package[extra]`, which is not pinned, and installs nothing."""
    text = (ROOT / "requirements" / "dev.txt").read_text()
    pins = [Requirement(line.split(" ")[0]) for line in text.splitlines() if "==" in line]
    extras: dict[NormalizedName, set[str]] = defaultdict(set)
    for pin in pins:
        extras[canonicalize_name(pin.name)] |= pin.extras
    installed = {canonicalize_name(each.name): each for each in distributions()}
    for name in extras.keys() & installed.keys():
        for required in map(Requirement, installed[name].requires or ()):
            if required.marker is None or any(
                required.marker.evaluate({"extra": extra}) for extra in ("", *extras[name])
            ):
                assert required.extras <= extras[canonicalize_name(required.name)], f"{name}: {required}"


def test_what_runs_is_what_is_tested() -> None:
    """The image and `make` have the same versions of what both have."""
    pin = re.compile(r"^([a-z0-9.-]+)(?:\[[a-z0-9,-]+\])?==(\S+)", re.MULTILINE)
    pins = {file.stem: dict(pin.findall(file.read_text())) for file in FILES}
    assert {**pins["dev"], **pins["run"], **pins["fleet"], **pins["build"]} == pins["dev"]


def test_make_and_the_image_install_nothing_else() -> None:
    """What is not pinned comes from this repository, and is installed without dependencies."""
    for file in (ROOT / "Makefile", ROOT / "deploy" / "Dockerfile"):
        commands = re.split(r"\n\t|&&|\nRUN", file.read_text().replace("\\\n", " "))
        installs = [
            each for each in commands if re.search(r"\bpip\b.* (install|wheel) |\(PIP\) install", each)
        ]
        assert len(installs) >= 3, file
        assert [each for each in installs if not {"--require-hashes", "--no-deps"} & {*each.split()}] == []


def package(name: str, **more: object) -> dict[str, object]:
    return {"name": name, "version": "1.0", **more}


VULNERABLE = package("bad", vulns=[{"id": "CVE-1", "fix_versions": ["1.1"]}])
SKIPPED = package("unknown", skip_reason="Dependency not found")
FINE = package("fine", vulns=[])


@pytest.mark.parametrize(
    ("answer", "is_good", "printed"),
    [
        pytest.param([FINE], True, "no known vulnerabilities in 1 packages", id="nothing found"),
        pytest.param([FINE, VULNERABLE], False, "bad 1.0: CVE-1, fixed in 1.1", id="found"),
        pytest.param([SKIPPED], True, "NOT AUDITED", id="nothing is known about any package"),
        pytest.param([FINE, SKIPPED], True, "nothing is known about them: unknown", id="or about some"),
        pytest.param(
            None, True, "NOT AUDITED: the data on vulnerabilities cannot be reached: no route", id="no data"
        ),
    ],
)
def test_an_audit_lists_what_it_could_not_audit(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: list[dict[str, object]] | None,
    is_good: bool,
    printed: str,
) -> None:
    """pip-audit itself ends with success when it has no information about any package."""
    out = "" if answer is None else json.dumps({"dependencies": answer})
    done = subprocess.CompletedProcess([sys.executable], 1, out, "Traceback\nno route")
    monkeypatch.setattr("subprocess.run", lambda *_, **__: done)
    assert audit.audit("run.txt") is is_good
    assert printed in capsys.readouterr().out
