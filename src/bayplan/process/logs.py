"""Logs in the two formats of Kubernetes: klog's lines, and JSON.

    I1116 01:54:49.123456    4711 process.py:52] "Starting the scheduler" version="v1.36.4"
    {"ts":1794794089123.456,"caller":"process/process.py:52","msg":"Starting the scheduler","v":0,…}

`-v` is a scale from 0 to 10 and Python's levels another; INFO is verbosity 0. Each step of verbosity is one
level lower: code that logs at `INFO - 2` is logged from `-v=2` on (`verbosity(2)`). DEBUG is logged from
`-v=4` on.

Facts are passed beside a message, not inside it, so that they can be searched: `log(…, pod=…)`. This module
does not hide secrets: they must not be logged.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import Any, Final, TextIO

import bayplan
from bayplan.errors import ConfigError
from bayplan.printable import printable, printable_json, printable_lines

TEXT: Final = "text"
JSON: Final = "json"

DEBUG_VERBOSITY: Final = 4
_FIELDS: Final = "fields"
_PLUGINS: Final = "bayplan.plugins."
_LETTERS: Final = ((logging.ERROR, "E"), (logging.WARNING, "W"))


def verbosity(v: int) -> int:
    """The level of messages that are logged from `-v=N` on."""
    return logging.INFO - v


def verbosity_of(level: int) -> int:
    """The verbosity from which a record of this level is logged."""
    if level >= logging.INFO:
        return 0
    return DEBUG_VERBOSITY if level == logging.DEBUG else logging.INFO - level


def log(logger: logging.Logger, level: int, message: str, **facts: object) -> None:
    """Logs a message with facts. `err` is the error."""
    if logger.isEnabledFor(level):
        logger.log(level, "%s", message, extra={_FIELDS: facts}, stacklevel=2)


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The flags about logs."""

    form: str = TEXT
    verbosity: int = 0
    modules: Sequence[str] = ()
    """`pattern=N`, each for the files whose name it matches."""

    def check(self) -> None:
        """Raises ConfigError, in kube-scheduler's words, if this is invalid."""
        if self.form not in (TEXT, JSON):
            raise ConfigError(f'format: Invalid value: "{self.form}": Unsupported log format')
        if self.modules and self.form != TEXT:
            raise ConfigError("vmodule: Forbidden: Only supported for text log format")


def configure(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Configures Python's logging for the chosen format, on standard error unless set otherwise."""
    settings.check()
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JSONFormatter() if settings.form == JSON else KlogFormatter())
    rules = [(pattern, int(v)) for pattern, _, v in (module.rpartition("=") for module in settings.modules)]
    handler.addFilter(Verbosity(settings.verbosity, rules))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(_level(max([settings.verbosity, *_set_levels(rules)])))


def _set_levels(rules: Sequence[tuple[str, int]]) -> Iterator[int]:
    """Sets the levels of loggers of single files. Yields the verbosities that other loggers need, too.

    Otherwise every message of every file would be created and then dropped, which costs more than some of the
    work that it describes. All plugins share one logger, whose files are not known.
    """
    modules = tuple(_modules()) if rules else ()
    for pattern, v in rules:
        files = [name for name in modules if fnmatchcase(name.rpartition(".")[2], pattern)]
        for name in files:
            logging.getLogger(name).setLevel(_level(v))
        if not files or any(name.startswith(_PLUGINS) for name in files):
            yield v


def _modules() -> Iterator[str]:
    """The names of all our modules, which are those of their loggers."""
    for path in Path(bayplan.__file__).parent.rglob("*.py"):
        yield ".".join(("bayplan", *path.relative_to(Path(bayplan.__file__).parent).with_suffix("").parts))


def _level(v: int) -> int:
    """The lowest level of Python that is logged with `-v`."""
    return min(verbosity(v), logging.DEBUG if v >= DEBUG_VERBOSITY else logging.INFO)


def change_verbosity(v: int) -> None:
    """Sets the verbosity; settings for single files stay."""
    root = logging.getLogger()
    for handler in root.handlers:
        for rule in handler.filters:
            if isinstance(rule, Verbosity):
                rule.everywhere = v
    root.setLevel(min(root.level, _level(v)))


class Verbosity(logging.Filter):
    """Passes the records that `-v` and `--vmodule` select."""

    def __init__(self, everywhere: int, rules: Sequence[tuple[str, int]] = ()) -> None:
        super().__init__()
        self.everywhere = everywhere
        self._rules = rules

    def filter(self, record: logging.LogRecord) -> bool:
        wanted = next((v for pattern, v in self._rules if fnmatchcase(record.module, pattern)), None)
        return verbosity_of(record.levelno) <= (self.everywhere if wanted is None else wanted)


class KlogFormatter(logging.Formatter):
    """One line per message, followed by its facts as key="value". A traceback follows on separate lines."""

    def format(self, record: logging.LogRecord) -> str:
        letter = next((letter for level, letter in _LETTERS if record.levelno >= level), "I")
        at = datetime.fromtimestamp(record.created).strftime("%m%d %H:%M:%S.%f")
        head = f"{letter}{at} {record.process or 0:7d} {record.filename}:{record.lineno}] "
        facts = _facts(record)
        message = record.getMessage()
        if facts is None:
            line = head + printable(message)
        else:
            shown = "".join(f" {key}={_shown(value)}" for key, value in facts.items())
            line = f"{head}{_quoted(message)}{shown}"
        if record.exc_info and record.exc_info[0] is not None:
            line = f"{line}\n{_traceback(record.exc_info)}"
        return line


class JSONFormatter(logging.Formatter):
    """One object per line: ts (milliseconds), caller, msg, v or err, and the facts."""

    def format(self, record: logging.LogRecord) -> str:
        path = PurePath(record.pathname)
        line: dict[str, Any] = {
            "ts": round(record.created * 1000, 3),
            "caller": f"{path.parent.name}/{path.name}:{record.lineno}",
            "msg": record.getMessage(),
        }
        if record.levelno < logging.ERROR:
            line["v"] = verbosity_of(record.levelno)
        line |= {key: _plain(value) for key, value in (_facts(record) or {}).items()}
        if record.exc_info and record.exc_info[1] is not None:
            line.setdefault("err", str(record.exc_info[1]) or type(record.exc_info[1]).__name__)
            line["stacktrace"] = "".join(traceback.format_exception(*record.exc_info)).rstrip()
        return printable_json(json.dumps(line, ensure_ascii=False, separators=(",", ":")))


def _traceback(error: tuple[Any, Any, Any]) -> str:
    """A traceback. Further lines of an exception's message are indented: they are not lines of the log."""
    parts = (part.rstrip("\n") for part in traceback.format_exception(*error))
    return printable_lines(
        "\n".join(part if part.startswith("  File ") else part.replace("\n", "\n    ") for part in parts)
    )


def _facts(record: logging.LogRecord) -> dict[str, object] | None:
    facts = getattr(record, _FIELDS, None)
    return facts if isinstance(facts, dict) else None


def _plain(value: object) -> object:
    return value if isinstance(value, str | int | float | bool | list | dict | None) else str(value)


def _shown(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value)
        case str() if "\n" in value:
            # As klog does, so that several lines stay readable.
            value = printable_lines(value)
            return "<\n\t" + value.rstrip("\n").replace("\n", "\n\t") + "\n >"
        case list() | dict():
            return printable_json(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
        case _:
            return _quoted(str(value))


def _quoted(text: str) -> str:
    return printable_json(json.dumps(text, ensure_ascii=False))
