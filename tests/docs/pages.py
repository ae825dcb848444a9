"""The documentation as tests see it: code, commands with their output, and links."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "conformance/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "extension-points").glob("*.md")),
)
ANYTHING = "…"
"""As a line of shown output: any number of lines. At the end of a line: any continuation."""

_CLOCK = re.compile(r"\b\d\d:\d\d:\d\d\b")


@dataclass(frozen=True, slots=True)
class Command:
    """A `$ bayplan …` of a page, what it shows, and the exit status it is documented to have."""

    page: str
    arguments: tuple[str, ...]
    shown: tuple[str, ...]
    status: int = 0

    def __str__(self) -> str:
        return f"{self.page}: {shlex.join(self.arguments)}"


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", read(page), re.DOTALL | re.MULTILINE)


def commands(page: Path) -> Iterator[Command]:
    """The commands of all `console` blocks. `$ echo $?` after one shows its status."""
    for block in blocks(page, "console"):
        sessions = [part.splitlines() for part in re.split(r"^\$ ", block, flags=re.MULTILINE) if part]
        for session, following in zip(sessions, [*sessions[1:], []], strict=True):
            line, *shown = session
            words = shlex.split(line, comments=True)
            if words[0] != "bayplan":
                continue
            status = int(following[1]) if following and following[0] == "echo $?" else 0
            yield Command(page.name, tuple(words[1:]), tuple(shown), status)


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """The files that the page links to, each with the heading in it or ""."""
    for target, heading in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", read(page)):
        yield (page.parent / target).resolve() if target else page, heading


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found = re.findall(r"^#+ (.*)$", read(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def command_lines(page: Path) -> Iterator[list[str]]:
    """The words of every `bayplan`, `make` and `python -m` command, in blocks and in text."""
    text = read(page)
    quoted = re.findall(r"`([^`\n]+)`", text)
    indented = re.findall(
        r"^    (.+)$", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE
    )
    shown = [
        line
        for language in ("sh", "console")
        for block in blocks(page, language)
        for line in block.splitlines()
    ]
    for line in (*quoted, *indented, *shown):
        for part in line.removeprefix("$ ").removeprefix(".venv/bin/").split(" | "):
            if re.match(r"(?:bayplan|make|python -m) \S", part):
                yield shlex.split(part.replace(ANYTHING, ""), comments=True)


def agree(shown: Sequence[str], printed: Sequence[str]) -> bool:
    """Whether the output on the page is the one that was printed, up to `ANYTHING`."""
    if not shown:
        return not printed
    if shown[0] == ANYTHING:
        return any(agree(shown[1:], printed[i:]) for i in range(len(printed) + 1))
    return bool(printed) and _same_line(shown[0], printed[0]) and agree(shown[1:], printed[1:])


def _same_line(shown: str, printed: str) -> bool:
    """Columns are as wide as their content, so the number of spaces does not count, nor the time."""
    shown, printed = (_CLOCK.sub("00:00:00", " ".join(line.split())) for line in (shown, printed))
    return shown == printed or (shown.endswith(ANYTHING) and printed.startswith(shown[:-1]))
