"""The answers of a plugin: the status that it returns, and the texts about an exception that it raises.

"It does not fit" is a status, not an exception. A failure has a short text for events and decisions, and a
traceback for logs. The short text has the type of the exception and where in the plugin it was raised, so
that an author can act on the event alone:

    KeyError: 'zone' (prefer_zone.py:12, in score_node)

The deliberate errors of built-in plugins have kube-scheduler's texts and stay as they are.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import signal
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from types import CoroutineType, TracebackType
from typing import Any, Final

from bayplan.errors import BayplanError
from bayplan.framework.state import NotInStateError


class Code(IntEnum):
    """The codes of the scheduling framework, with upstream's numbers."""

    SUCCESS = 0
    ERROR = 1
    """An error. The attempt fails and the pod is scheduled again after a backoff."""
    UNSCHEDULABLE = 2
    """Rejected; evicting pods may help."""
    UNRESOLVABLE = 3
    """Rejected, and evicting pods cannot help (UnschedulableAndUnresolvable)."""
    WAIT = 4
    """Only Permit: the pod has to wait before it is bound."""
    SKIP = 5
    """The plugin has nothing to do for this pod."""
    PENDING = 6
    """Rejected; the pod is scheduled again without a backoff when an event requeues it."""

    @property
    def label(self) -> str:
        """The name that events, metrics and decisions show."""
        return _LABELS[self]

    @property
    def is_rejection(self) -> bool:
        return self in (Code.UNSCHEDULABLE, Code.UNRESOLVABLE, Code.PENDING)


_LABELS = {
    Code.SUCCESS: "Success",
    Code.ERROR: "Error",
    Code.UNSCHEDULABLE: "Unschedulable",
    Code.UNRESOLVABLE: "UnschedulableAndUnresolvable",
    Code.WAIT: "Wait",
    Code.SKIP: "Skip",
    Code.PENDING: "Pending",
}


@dataclass(frozen=True, slots=True)
class Status:
    """A code, the reasons for it, and the plugin that returned it."""

    code: Code
    reasons: tuple[str, ...] = ()
    plugin: str = ""

    @property
    def message(self) -> str:
        return ", ".join(self.reasons)

    @property
    def is_success(self) -> bool:
        return self.code is Code.SUCCESS

    @property
    def is_rejection(self) -> bool:
        return self.code.is_rejection

    def by(self, plugin: str) -> Status:
        """The same status with the plugin's name, unless it has one."""
        return self if self.plugin else Status(self.code, self.reasons, plugin)


SUCCESS = Status(Code.SUCCESS)
SKIP = Status(Code.SKIP)
SKIP_FOR_SIGNATURE = Status(Code.SKIP, ("idle",))
"""SKIP for all pods with the same signature, until objects or (anti-)affinity terms change."""


def unschedulable(*reasons: str) -> Status:
    """Rejected; evicting pods may help."""
    return Status(Code.UNSCHEDULABLE, reasons)


def unresolvable(*reasons: str) -> Status:
    """Rejected, and evicting pods cannot help."""
    return Status(Code.UNRESOLVABLE, reasons)


def waits(*reasons: str) -> Status:
    """Neither success nor a rejection yet."""
    return Status(Code.WAIT, reasons)


def failure(*reasons: str) -> Status:
    """An error."""
    return Status(Code.ERROR, reasons)


_EXCEPTIONS: Final = (Exception, GeneratorExit, SystemExit, asyncio.CancelledError)


def plugin_exceptions() -> tuple[type[BaseException], ...]:
    """What to catch around the call of a plugin: everything that it may raise itself.

    `sys.exit()` in a plugin fails one attempt, it does not end the scheduler. KeyboardInterrupt is the
    plugin's own only where Ctrl-C does not raise it: live schedulers handle the signal. Around an `await`,
    a CancelledError may be a real cancellation: see `is_cancelled`.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        return _EXCEPTIONS
    return (*_EXCEPTIONS, KeyboardInterrupt)


def running_task() -> asyncio.Task[Any] | None:
    """The task that runs now; None without one or without a loop."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def is_cancelled(error: BaseException, awaiting: asyncio.Task[Any] | None) -> bool:
    """Whether the exception of an awaited call cancels the task that awaits it, and is not the plugin's own.

    A coroutine that is closed outside its task, because its loop was abandoned, is cancelled too.
    """
    task = running_task()
    if isinstance(error, GeneratorExit):
        return awaiting is None or task is not awaiting
    # A coroutine that waits may have got a task of its own since the call (`scheduler/tasks.py`).
    return isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling() > 0)


MAX_TEXT: Final = 300
"""Characters of an exception's text that are shown."""
MAX_VALUE: Final = 60
"""Characters of a wrong result that are shown."""

_WRONG_CALL: Final = re.compile(r"(?:\w+\.)*(\w+)\(\) (?:takes|missing|got) ")
"""The text of a TypeError about a method that was called with wrong arguments."""

_PACKAGE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_BUILT_IN: Final = os.path.join(_PACKAGE, "plugins") + os.sep


class WrongResultError(TypeError):
    """A method of a plugin returned something that it must not return."""

    def __init__(self, method: str, text: str) -> None:
        super().__init__(text)
        self.method = method


def wrong_result(method: str, value: object, expected: str) -> WrongResultError:
    """`filter_node returned False; return unschedulable("reason") or None`."""
    if isinstance(value, CoroutineType):
        value.close()
        text = f"{method} returned a coroutine; define it with def, not async def"
    else:
        text = f"{method} returned {_shown(value)}; {expected}"
    return WrongResultError(method, text)


def describe(error: BaseException, plugin: object = None) -> str:
    """The short text about a plugin's exception. Safe for events: one line, limited in length."""
    text = _one_line(str(error))
    if isinstance(error, WrongResultError):
        return f"{text}{_in_parentheses(_method_location(plugin, error.method))}"
    frames = list(_frames(error.__traceback__))
    if _is_deliberate(error, frames):
        return text or type(error).__name__
    if isinstance(error, ValueError) and text.endswith("is read-only"):
        text = f"{text}: the array is shared, change a copy"
    name = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"{name}{_in_parentheses(_location(frames, plugin, text))}"


def traceback_of(error: BaseException | None) -> str:
    """The traceback of an exception that a plugin raised; empty if the error is deliberate."""
    if error is None or isinstance(error, WrongResultError):
        return ""
    if _is_deliberate(error, list(_frames(error.__traceback__))):
        return ""
    return "".join(traceback.format_exception(error)).rstrip()


def _is_deliberate(error: BaseException, frames: list[tuple[str, int, str]]) -> bool:
    """Whether a built-in plugin raised the error on purpose, because of the pod."""
    if not isinstance(error, BayplanError | NotInStateError):
        return False
    return not frames or frames[0][0].startswith(_BUILT_IN)


def _frames(found: TracebackType | None) -> Iterator[tuple[str, int, str]]:
    """File, line and function from the plugin's method inwards: the scheduler's own frames come before it."""
    inside = False
    while found is not None:
        code = found.tb_frame.f_code
        file = code.co_filename
        inside = inside or not file.startswith(_PACKAGE) or file.startswith(_BUILT_IN)
        if inside:
            yield file, found.tb_lineno, code.co_name
        found = found.tb_next


def _location(frames: list[tuple[str, int, str]], plugin: object, text: str) -> str:
    """The innermost place in the plugin's own files."""
    if not frames:
        called = _WRONG_CALL.match(text)
        return _method_location(plugin, called[1] if called else "")
    folder = os.path.dirname(frames[0][0])
    file, line, function = next(frame for frame in reversed(frames) if os.path.dirname(frame[0]) == folder)
    return f"{os.path.basename(file)}:{line}, in {function}"


def _method_location(plugin: object, method: str) -> str:
    """Where a method of the plugin is defined, or else the plugin."""
    found = getattr(type(plugin), method, None) if method else None
    code = getattr(inspect.unwrap(found), "__code__", None) if callable(found) else None
    if code is not None:
        return f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}"
    try:
        return "" if plugin is None else os.path.basename(inspect.getfile(type(plugin)))
    except (TypeError, OSError):
        return ""


def _in_parentheses(text: str) -> str:
    return f" ({text})" if text else ""


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"


def _shown(value: object) -> str:
    """A value for an error message: short, with its type unless that is obvious."""
    try:
        text = _one_line(repr(value))
    except Exception as error:
        text = f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    if len(text) > MAX_VALUE:
        text = f"{text[:MAX_VALUE]}…"
    obvious = value is None or isinstance(value, bool | int | float | str)
    return text if obvious else f"{text} ({type(value).__name__})"
