"""The files of the page: each is used, and each is in the wheel."""

from __future__ import annotations

import re
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "src" / "bayplan" / "ui" / "static"
ENTRIES = {"index.html", "login.html", "entered.html"}
"""Those that the server names itself."""


def names(text: str) -> set[str]:
    return {one for found in re.findall(r'static/([\w.]+)"|from "\./([\w.]+)"', text) for one in found if one}


def test_every_file_is_used() -> None:
    used, new = set[str](), set(ENTRIES)
    while new:
        used |= new
        new = {name for one in new for name in names((STATIC / one).read_text(encoding="utf-8"))} - used
    assert used == {one.name for one in STATIC.iterdir()}


def test_every_file_is_in_the_wheel() -> None:
    packed = {Path(one.path) for one in WheelBuilder(str(ROOT)).recurse_included_files()}
    assert set(STATIC.iterdir()) <= packed
