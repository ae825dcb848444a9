"""Errors between the scheduler and an extender."""

from __future__ import annotations

from bayplan.errors import BayplanError


class ExtenderError(BayplanError):
    """A request to an extender failed, or its answer was an error; users see the text."""

    url: str
    """urlPrefix of the extender, as configured."""

    def __init__(self, url: str, message: str) -> None:
        super().__init__(message)
        self.url = url


class MalformedResponseError(BayplanError):
    """An answer is not JSON, or a field has the wrong type. Callers that know the extender add its name."""

    field: str
    """The field, as the protocol spells it (`FailedNodes[n1]`); empty for the answer as a whole."""
    problem: str

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(field, problem)
        self.field = field
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.field}: {self.problem}" if self.field else self.problem
