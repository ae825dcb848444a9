"""The table of kinds in docs/embedded.md is what the embedded server serves."""

from __future__ import annotations

import re

from bayplan.api.releases import RELEASES
from bayplan.embedded.server.catalog import Catalog
from bayplan.embedded.server.http.discovery import served
from bayplan.embedded.server.kinds import GATED, STORED_ONLY, WORKLOADS

from .pages import ROOT, read

_ROW = re.compile(r"^\| ([a-z][\w./, ]*) \| (.*) \|$", re.MULTILINE)
_KIND = re.compile(r"\b([A-Z]\w*[a-z]\w*)(\\\*)?")


def _documented() -> dict[str, dict[str, bool]]:
    """The kinds of each group and version, and whether nothing acts on them."""
    table = read(ROOT / "docs/embedded.md").partition("## What is served")[2].partition("\n## ")[0]
    found: dict[str, dict[str, bool]] = {}
    for versions, kinds in _ROW.findall(table):
        for version in versions.split(", "):
            found[version] = {kind: bool(star) for kind, star in _KIND.findall(kinds)}
    return found


def test_every_kind_is_listed_and_no_other() -> None:
    listed = {(version, kind) for version, kinds in _documented().items() for kind in kinds}
    subresources = {("policy/v1", "Eviction")}
    newest = list(RELEASES.values())[-1]
    newest = newest.with_gates(newest.gates | {resource.gate for resource in GATED})
    assert listed - subresources == {
        (each.api_version, each.kind) for each in served(Catalog(release=newest))
    }


def test_kinds_that_nothing_acts_on_have_a_star() -> None:
    starred = {kind for kinds in _documented().values() for kind, star in kinds.items() if star}
    assert starred == {resource.kind for resource in (*STORED_ONLY, WORKLOADS)}
