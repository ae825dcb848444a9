"""Semantic versions in expressions, with the parser's texts that users see when one is malformed.

https://semver.org/spec/v2.0.0.html
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Final

from bayplan.cel.errors import NO_SUCH_OVERLOAD, EvaluationError
from bayplan.cel.values import MAX_UINT, Comparable, Value, go_quoted

_DIGITS: Final = re.compile(r"[0-9]*", re.ASCII)
_ALPHANUMERIC: Final = re.compile(r"[0-9A-Za-z-]*", re.ASCII)


@dataclass(frozen=True, slots=True, eq=False)
class Semver(Comparable):
    TYPE_NAME: ClassVar = "kubernetes.Semver"

    major: int
    minor: int
    patch: int
    prerelease: tuple[str, ...] = ()

    def equals(self, other: Value) -> bool:
        if not isinstance(other, Semver):
            raise EvaluationError(NO_SUCH_OVERLOAD)
        return self.compare(other) == 0

    def compare(self, other: Semver) -> int:
        """-1, 0 or 1 by precedence; build metadata does not matter."""
        left, right = self._key(), other._key()
        return int(left > right) - int(left < right)

    def _key(self) -> tuple[object, ...]:
        # A release comes after its prereleases, numbers before words, and a longer list after its own
        # beginning.
        identifiers = tuple(
            (0, int(part), "") if part.isdigit() else (1, 0, part) for part in self.prerelease
        )
        return (self.major, self.minor, self.patch, not self.prerelease, identifiers)


@lru_cache(maxsize=65536)
def semver(text: str) -> Semver:
    """The version in a text.

    Raises:
        EvaluationError: it is not a version.
    """
    if not text:
        raise EvaluationError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise EvaluationError("No Major.Minor.Patch elements found")
    major, minor = _number("major", parts[0]), _number("minor", parts[1])
    rest, has_build, build = parts[2].partition("+")
    patch_text, has_prerelease, prerelease = rest.partition("-")
    patch = _number("patch", patch_text)
    identifiers = tuple(map(_prerelease, prerelease.split("."))) if has_prerelease else ()
    for part in build.split(".") if has_build else ():
        _check_build(part)
    return Semver(major, minor, patch, identifiers)


def normalized_semver(text: str) -> Semver:
    """The version of a text that may have a leading `v`, lack minor and patch, and have leading zeros."""
    parts = [_without_leading_zeros(part) for part in text.removeprefix("v").split(".", 2)]
    if len(parts) < 3:
        if "+" in parts[-1] or "-" in parts[-1]:
            raise EvaluationError("short version cannot contain PreRelease/Build meta data")
        parts += ["0"] * (3 - len(parts))
    return semver(".".join(parts))


def _without_leading_zeros(part: str) -> str:
    if len(part.encode()) <= 1:
        return part
    stripped = part.lstrip("0")
    return stripped if stripped[:1] in tuple("123456789") else "0" + stripped


def _number(which: str, text: str) -> int:
    if not _DIGITS.fullmatch(text):
        raise EvaluationError(f"Invalid character(s) found in {which} number {go_quoted(text)}")
    if len(text) > 1 and text[0] == "0":
        raise EvaluationError(
            f"{which.capitalize()} number must not contain leading zeroes {go_quoted(text)}"
        )
    if not text:
        raise EvaluationError('strconv.ParseUint: parsing "": invalid syntax')
    number = int(text) if len(text) < 21 else MAX_UINT + 1
    if number > MAX_UINT:
        raise EvaluationError(f"strconv.ParseUint: parsing {go_quoted(text)}: value out of range")
    return number


def _prerelease(part: str) -> str:
    if not part:
        raise EvaluationError("Prerelease is empty")
    if part.isascii() and part.isdigit():
        if len(part) > 1 and part[0] == "0":
            raise EvaluationError(
                f"Numeric PreRelease version must not contain leading zeroes {go_quoted(part)}"
            )
    elif not _ALPHANUMERIC.fullmatch(part):
        raise EvaluationError(f"Invalid character(s) found in prerelease {go_quoted(part)}")
    return part


def _check_build(part: str) -> None:
    if not part:
        raise EvaluationError("Build meta data is empty")
    if not _ALPHANUMERIC.fullmatch(part):
        raise EvaluationError(f"Invalid character(s) found in build meta data {go_quoted(part)}")
