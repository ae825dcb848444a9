"""Errors of expressions: when they are compiled, and when they are evaluated.

The texts are those of cel-go and Kubernetes, because they appear in pod conditions and events, which tools
compare.
"""

from __future__ import annotations

from typing import Final

from bayplan.errors import BayplanError

NO_SUCH_OVERLOAD: Final = "no such overload"


class CelError(BayplanError):
    """Base of all errors of expressions."""


class CompileError(CelError):
    """The expression cannot be compiled: syntax, unknown names or types that do not fit."""


class EvaluationError(CelError):
    """The expression failed for this input, e.g. because a key does not exist."""

    cost: int = 0
    """The cost of the evaluation up to the error, if it was counted."""


class AbortedError(EvaluationError):
    """The evaluation was stopped. No operator may swallow it."""


class CostLimitError(AbortedError):
    """The evaluation exceeded its cost limit."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


def no_such_key(key: object) -> EvaluationError:
    return EvaluationError(f"no such key: {format_key(key)}")


def no_such_overload(function: str = "", *type_names: str) -> EvaluationError:
    """`no such overload`, with the function and the types of its arguments where upstream names them."""
    if not function:
        return EvaluationError(NO_SUCH_OVERLOAD)
    return EvaluationError(f"{NO_SUCH_OVERLOAD}: {function}({', '.join(type_names)})")


def format_key(key: object) -> str:
    """A key as Go prints it: booleans in lower case, doubles without a needless fraction."""
    if isinstance(key, bool):
        return str(key).lower()
    return str(key).removesuffix(".0") if isinstance(key, float) else str(key)
