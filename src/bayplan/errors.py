"""Everything bayplan raises deliberately, in one tree.

    BayplanError
    ├── InputError            the user's input is invalid: where, and what is wrong
    │   ├── QuantityError     a text is not a quantity such as "1.5Gi"
    │   ├── SelectorError     a label or node selector is malformed
    │   └── DecodeError       a file is not YAML or JSON, or a field of an object has the wrong type
    ├── ConfigError           the scheduler's configuration is invalid
    ├── PluginError           a plugin violated its contract, or failed
    └── APIError              the API server rejected the request or did not respond
        ├── UnauthorizedError     401: the server does not accept the credentials
        ├── ForbiddenError        403: the user may not do this
        ├── NotFoundError         404: the object does not exist
        ├── ConflictError         409: the object has changed since it was read, or exists already
        ├── GoneError             410: the resourceVersion is too old; list again
        ├── ServerError           429, 5xx, or unreachable: the request may succeed later
        └── UnknownOutcomeError   a write got no response: it may have taken effect

More are defined where they are raised: `AttemptError` (runtime), `CacheError` (state), `ExtenderError`
(extender), `NotLeadingError` and `LeadershipLostError` (client).

"This pod does not fit" is an answer, not an error: it is a status, and is never raised.
This file is at the bottom of the import graph: it imports nothing of ours.
"""

from __future__ import annotations

from typing import Self


class BayplanError(Exception):
    """Base class of all errors that bayplan raises deliberately."""


class InputError(BayplanError):
    """Invalid user input; the attributes say where, as far as it is known.

    Inner code knows only the problem. Each caller adds what it knows with `at`, so that the message names
    file, line, object and field:

        cluster.yaml:12: Pod default/web: spec.containers[0].resources.requests[cpu]: "1x" is not a quantity
    """

    source: str
    """The file, or "" if the input is not from a file."""
    line: int | None
    """Line in `source`, counted from 1: where the document or the problem begins."""
    object_key: str
    """Kind and key of the object, `Pod default/web`."""
    field: str
    """Path of the field inside the object, `spec.containers[0].image`."""
    problem: str
    """What is wrong, without the location."""

    def __init__(
        self,
        problem: str,
        *,
        source: str = "",
        line: int | None = None,
        object_key: str = "",
        field: str = "",
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.source = source
        self.line = line
        self.object_key = object_key
        self.field = field

    def at(self, *, source: str = "", line: int | None = None, object_key: str = "", field: str = "") -> Self:
        """Adds what is known about the location; what an inner caller has set is kept."""
        self.source = self.source or source
        self.line = line if self.line is None else self.line
        self.object_key = self.object_key or object_key
        self.field = self.field or field
        return self

    def __str__(self) -> str:
        if self.source:
            place = self.source if self.line is None else f"{self.source}:{self.line}"
        else:
            place = "" if self.line is None else f"line {self.line}"
        return ": ".join(part for part in (place, self.object_key, self.field, self.problem) if part)


class QuantityError(InputError):
    """A text is not a valid quantity."""


class SelectorError(InputError):
    """A label selector or node selector is malformed."""


class DecodeError(InputError):
    """A file or an object cannot be decoded: malformed YAML or JSON, or a field of the wrong type."""


class ConfigError(BayplanError):
    """The scheduler's configuration is invalid."""

    unknown_plugin: str
    """The plugin that does not exist, if that is the problem."""

    def __init__(self, message: str, *, unknown_plugin: str = "") -> None:
        super().__init__(message)
        self.unknown_plugin = unknown_plugin

    def within(self, place: str) -> ConfigError:
        """The same problem, with the place before it."""
        return ConfigError(f"{place}: {self}", unknown_plugin=self.unknown_plugin)


class PluginError(BayplanError):
    """A plugin violated its contract, or failed."""

    plugin: str
    """Name of the plugin."""
    problem: str

    def __init__(self, plugin: str, problem: str) -> None:
        super().__init__(plugin, problem)
        self.plugin = plugin
        self.problem = problem

    def __str__(self) -> str:
        return f"plugin {self.plugin}: {self.problem}"


class AllocationError(BayplanError):
    """The claims cannot be allocated as they are; ends the scheduling attempt with this text."""


class AllocationLimitError(AllocationError):
    """The search for devices took longer than it may."""


class APIError(BayplanError):
    """A request to the API server failed. `code` is the HTTP status, 0 if there was no response."""

    code = 0

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class UnauthorizedError(APIError):
    """The server does not accept our credentials."""

    code = 401


class ForbiddenError(APIError):
    """The server does not permit the request."""

    code = 403


class NotFoundError(APIError):
    """The object does not exist."""

    code = 404


class ConflictError(APIError):
    """The object has changed since it was read, or exists already."""

    code = 409


class GoneError(APIError):
    """The requested resourceVersion is too old."""

    code = 410


class ServerError(APIError):
    """The server failed, or could not be reached. A write may have taken effect: read back to find out."""

    code = 500


class UnknownOutcomeError(APIError):
    """A write got no response: it is unknown whether it took effect."""
