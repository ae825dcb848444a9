"""Names and phrases that were replaced by Kubernetes' words do not come back.

`old_identifiers.txt` and `old_phrases.txt` have one entry per line, sorted; an entry is a regular expression.
Identifiers match as whole words with their case, phrases in any case and across line breaks. Add an entry
when you have replaced the last occurrence. Ordinary English that happens to be an old name ("follow", "once")
is not listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from .pages import ROOT

IDENTIFIERS = Path(__file__).with_name("old_identifiers.txt")
PHRASES = Path(__file__).with_name("old_phrases.txt")
SEARCHED = (
    *("ARCHITECTURE.md", "CONTRIBUTING.md", "Makefile", "README.md", "pyproject.toml"),
    *(
        "CHANGELOG.md",
        "benchmarks",
        "changelog.d",
        "conformance",
        "deploy",
        "docs",
        "examples",
        "requirements",
    ),
    *("src", "tests", "tools"),
)
SUFFIXES = frozenset({"", ".go", ".in", ".jinja", ".md", ".mod", ".py", ".toml", ".yaml"})
RENAMING_NOTES = frozenset({"docs/plugin-stability.md"})
"""They name the old identifiers for users who have to replace them."""


def entries(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines()


def identifier_pattern(identifiers: list[str]) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-])(?:{'|'.join(identifiers)})(?![\w-])")


def phrase_pattern(phrases: list[str]) -> re.Pattern[str]:
    """A line break in a comment is followed by its mark."""
    joined = "|".join(phrases).replace(" ", r"(?:\s+#)?\s+")
    return re.compile(rf"\b(?:{joined})\b", re.IGNORECASE)


def found(pattern: re.Pattern[str], text: str) -> list[str]:
    """The lines of all matches, with the matches."""
    return [f"{text.count(chr(10), 0, match.start()) + 1}: {match[0]}" for match in pattern.finditer(text)]


def files() -> Iterator[tuple[str, str]]:
    """Path and content of everything that is written for this project."""
    for part in SEARCHED:
        path = ROOT / part
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.suffix in SUFFIXES and file.is_file() and file != Path(__file__):
                yield file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")


@pytest.mark.parametrize("file", [IDENTIFIERS, PHRASES], ids=lambda file: file.stem)
def test_the_lists_are_sorted(file: Path) -> None:
    """So that two additions seldom meet in one line."""
    assert entries(file) == sorted(set(entries(file)))


def test_old_identifiers_are_gone() -> None:
    pattern = identifier_pattern(entries(IDENTIFIERS))
    left = [f"{name}:{hit}" for name, text in files() for hit in found(pattern, text)]
    assert [hit for hit in left if hit.partition(":")[0] not in RENAMING_NOTES] == []


def test_old_phrases_are_gone() -> None:
    pattern = phrase_pattern(entries(PHRASES))
    assert [f"{name}:{hit}" for name, text in files() for hit in found(pattern, text)] == []


def test_files_that_are_named_exist() -> None:
    """Docstrings name modules as `folder/module.py`; a merge or a move changes them too."""
    paths = [
        path.relative_to(ROOT).as_posix()
        for part in ("src", "tests", "conformance", "tools", "benchmarks")
        for path in (ROOT / part).rglob("*.py")
    ]
    known = {"/".join(parts[i:]) for parts in (path.split("/") for path in paths) for i in range(len(parts))}
    named = [
        (f"{name}: {match}", match)
        for name, text in files()
        if name.startswith("src/") or name == "CONTRIBUTING.md"
        for match in re.findall(r"`([\w/]+\.py)`", text)
    ]
    assert len(named) > 100
    assert [where for where, match in named if match not in known] == []


@pytest.mark.parametrize("part", SEARCHED)
def test_every_part_has_texts(part: str) -> None:
    """Otherwise a renamed folder would silently drop out of the search."""
    assert any(name == part or name.startswith(f"{part}/") for name, _ in files())


@pytest.mark.parametrize(
    ("text", "hits"),
    [
        pytest.param("x = OldName(1)", ["1: OldName"], id="a name"),
        pytest.param("x = NotOldNameEither, oldname, old-name-too", [], id="other names"),
        pytest.param("a\nOLD_LIMIT = MAX_LIMIT", ["2: OLD_LIMIT"], id="a prefix"),
    ],
)
def test_identifiers_match_as_whole_words(text: str, hits: list[str]) -> None:
    assert found(identifier_pattern(["OldName", r"OLD_\w+", "old-name"]), text) == hits


@pytest.mark.parametrize(
    ("text", "hits"),
    [
        pytest.param("Nobody\nMinds it", ["1: Nobody\nMinds"], id="in two lines"),
        pytest.param("# and nobody\n    # minds it", ["1: nobody\n    # minds"], id="in a comment"),
        pytest.param("anybody minds, nobody mindset", [], id="other phrases"),
    ],
)
def test_phrases_match_across_lines(text: str, hits: list[str]) -> None:
    assert found(phrase_pattern(["nobody minds"]), text) == hits
