"""What counts as a finding, whatever the input was: an unexpected exception, an error in the log
with a traceback, or more CPU than any input of this size may take."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

MAX_CPU_SECONDS: Final = 10.0
"""Of one input. Inputs are kilobytes, and there are no loops in what is fuzzed: this is generous."""
_REPOSITORY: Final = Path(__file__).parents[2]


class FindingError(Exception):
    """Something that must not happen, for any input.

    `signature` is the same for findings that have the same cause as far as one can see.
    """

    def __init__(self, message: str, signature: str = "") -> None:
        # Half a character in a message must not keep it from being saved.
        super().__init__(message.encode(errors="backslashreplace").decode())
        self.signature = (signature or message).encode(errors="backslashreplace").decode()


def from_exception(error: BaseException) -> FindingError:
    """An exception that should not have come out, with the place in bayplan's code where it came from."""
    if isinstance(error, FindingError):
        return error
    if isinstance(error, BaseExceptionGroup):
        return from_exception(error.exceptions[0])
    ours = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(_REPOSITORY / "src")
    ]
    place = f"{Path(ours[-1].filename).name}:{ours[-1].name}" if ours else "outside"
    text = "".join(traceback.format_exception(error))
    return FindingError(text, f"{type(error).__name__} in {place}")


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[FindingError] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.found.append(from_exception(record.exc_info[1]))
        elif "Traceback" in record.getMessage() or record.name == "asyncio":
            self.found.append(FindingError(record.getMessage(), record.getMessage()[:100]))


@contextmanager
def checked(*, max_cpu: float | None = MAX_CPU_SECONDS) -> Iterator[None]:
    """Runs one input under the rules above; None for no limit of time.

    Raises:
        FindingError: a rule was broken.
    """
    collector, root = _Collector(), logging.getLogger()
    root.addHandler(collector)
    began = time.process_time()
    try:
        yield
    except Exception as error:
        # The log often has more: a response with 500 does not name its cause.
        raise (collector.found or [from_exception(error)])[0] from error
    finally:
        root.removeHandler(collector)
    if collector.found:
        raise collector.found[0]
    taken = time.process_time() - began
    if max_cpu is not None and taken > max_cpu:
        raise FindingError(f"took {taken:.1f} s of CPU", "slow")
