"""Parses arguments into values of flags, by the rules of Go's pflag, and formats the usage text.

`--name value`, `--name=value`, `-v 2`, `-v=2`, `-v2`; a boolean flag takes its value only after `=`; `_` is
equivalent to `-`; `--` ends the flags. There are no positional arguments.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from bayplan import __version__
from bayplan.api.releases import DEFAULT_RELEASE, parse_release
from bayplan.errors import BayplanError
from bayplan.framework.args import Duration
from bayplan.process.flags import FLAGS, GROUPS, LETTERS, Flag

HELP_COLUMN: Final = 34
ABOUT: Final = (
    "Schedules the pods of a Kubernetes cluster, instead of kube-scheduler or beside it, until it is "
    "stopped. Flags, configuration, messages and exit statuses are those of kube-scheduler v1.36 or v1.37."
)


class FlagError(BayplanError):
    """A flag that does not exist, or whose value is wrong."""


class ArgumentError(BayplanError):
    """An argument that is not a flag."""


@dataclass(frozen=True, slots=True)
class FlagValues:
    """The value of every flag, and which of them were set."""

    values: Mapping[str, Any]
    given: frozenset[str] = field(default=frozenset())

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def texts(self) -> dict[str, str]:
        """Every flag with its value as text, as /flagz shows it."""
        return {name: _text(FLAGS[name], value) for name, value in self.values.items()}


def parse(arguments: Sequence[str], program: str) -> FlagValues:
    """Parses the arguments.

    Raises:
        FlagError: a flag is unknown, or its value is invalid.
        ArgumentError: there are arguments that are not flags.
    """
    values: dict[str, Any] = {flag.name: flag.default for flag in FLAGS.values()}
    given: set[str] = set()
    others: list[str] = []
    for flag, text in _flags(arguments, others):
        try:
            value = flag.kind.parse(text)
        except ValueError as error:
            shown = f"-{flag.letter}, --{flag.name}" if flag.letter else f"--{flag.name}"
            raise FlagError(f'invalid argument {_quoted(text)} for "{shown}" flag: {error}') from None
        if flag.kind.many and flag.name in given:
            value = (*values[flag.name], *value)
        values[flag.name] = value
        given.add(flag.name)
    if any(others):
        listed = " ".join(_quoted(argument) for argument in others)
        raise ArgumentError(f'"{program}" does not take any arguments, got [{listed}]')
    return FlagValues(values, frozenset(given))


def _flags(arguments: Sequence[str], others: list[str]) -> Iterator[tuple[Flag, str]]:
    """Every flag with its unparsed text; other arguments are added to `others`."""
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            others.extend(rest)
        elif argument.startswith("--"):
            yield _long(argument, rest)
        elif argument.startswith("-") and argument != "-":
            yield from _short(argument, rest)
        else:
            others.append(argument)


def _long(argument: str, rest: Iterator[str]) -> tuple[Flag, str]:
    name, equals, text = argument[2:].partition("=")
    if not name or name.startswith("-"):
        raise FlagError(f"bad flag syntax: {argument}")
    flag = FLAGS.get(name.replace("_", "-"))
    if flag is None:
        raise FlagError(f"unknown flag: --{name}")
    if equals:
        return flag, text
    if flag.kind.bare is not None:
        return flag, flag.kind.bare
    for following in rest:
        return flag, following
    raise FlagError(f"flag needs an argument: --{name}")


def _short(argument: str, rest: Iterator[str]) -> Iterator[tuple[Flag, str]]:
    letters = argument[1:]
    while letters:
        letter, letters = letters[0], letters[1:]
        flag = LETTERS.get(letter)
        if flag is None:
            raise FlagError(f"unknown shorthand flag: {letter!r} in {argument}")
        if letters.startswith("="):
            yield flag, letters[1:]
            return
        if flag.kind.bare is not None:
            yield flag, flag.kind.bare
            continue
        if letters:
            yield flag, letters
            return
        for following in rest:
            yield flag, following
            return
        raise FlagError(f"flag needs an argument: {letter!r} in {argument}")


def _text(flag: Flag, value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case tuple():
            listed = ",".join(map(str, value))
            return f"[{listed}]" if flag.kind.brackets else listed
        case _:
            return str(value)


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def version_text(flags: FlagValues) -> str:
    """What `--version` prints: the version that is emulated; `raw` is for programs.

    Raises:
        ConfigError: there is no such version.
    """
    emulated = flags["emulated-version"]
    release = parse_release(emulated[-1]) if emulated else DEFAULT_RELEASE
    kubernetes = f"v{release.patch_version}"
    if flags["version"] != "raw":
        return f"Kubernetes {kubernetes}"
    return f'{{"kubernetes":"{kubernetes}","bayplan":"{__version__}"}}'


def usage(program: str, width: int = 100) -> str:
    """The usage text: what the command does, and every flag with its default."""
    lines = [f"Usage: {program} [flags]", "", *textwrap.wrap(ABOUT, width)]
    for title, flags in GROUPS.items():
        lines += ["", f"{title}:"]
        for flag in flags:
            lines += _described(flag, width)
    return "\n".join(lines) + "\n"


def _described(flag: Flag, width: int) -> Iterator[str]:
    head = f"  -{flag.letter}, --{flag.name}" if flag.letter else f"  --{flag.name}"
    if flag.kind.metavar and flag.kind.bare is None:
        head = f"{head} {flag.kind.metavar}"
    text = flag.help + default_shown(flag)
    wrapped = textwrap.wrap(text, width - HELP_COLUMN)
    if len(head) < HELP_COLUMN - 1:
        yield f"{head:<{HELP_COLUMN}}{wrapped[0]}"
        wrapped = wrapped[1:]
    else:
        yield head
    for line in wrapped:
        yield f"{'':<{HELP_COLUMN}}{line}"


def default_shown(flag: Flag) -> str:
    """The default as the usage text shows it; empty if it is empty."""
    match flag.default:
        case "" | () | False | "false":
            return ""
        case True:
            return " (default true)"
        case tuple():
            return f" (default {','.join(flag.default)})"
        case Duration():
            return f" (default {flag.default})"
        case float():
            return f" (default {flag.default:g})"
        case _:
            return f" (default {flag.default})"
