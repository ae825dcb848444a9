"""Errors of the API server: as exceptions, with a remedy, and in the log once instead of at every retry.

The server responds with a Status object; anything in between (a load balancer, a proxy) may respond with
anything. The texts for the latter are client-go's, which people know. The messages of the API server are
precise but seldom helpful (`Unauthorized`), so `explained` adds what to do.
"""

from __future__ import annotations

import logging
import re
from typing import Final

import msgspec

from bayplan.errors import (
    APIError,
    ConflictError,
    ForbiddenError,
    GoneError,
    NotFoundError,
    ServerError,
    UnauthorizedError,
)

_TOO_LARGE: Final = "ResourceVersionTooLarge"
_BUDGET: Final = "DisruptionBudget"

_BY_REASON: Final[dict[str, type[APIError]]] = {
    "NotFound": NotFoundError,
    "AlreadyExists": ConflictError,
    "Conflict": ConflictError,
    "Expired": GoneError,
    "Gone": GoneError,
}
_BY_CODE: Final[dict[int, type[APIError]]] = {
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
}

_GENERIC: Final[dict[int, str]] = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    403: "the server does not allow access to the requested resource",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    406: "the server was unable to respond with a content type that the client supports",
    409: "the server reported a conflict",
    410: "the server says that the resource is gone",
    415: "the server was unable to understand the content type of the request",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: (
        "the server was unable to return a response in the time allotted, "
        "but may still be processing the request"
    ),
}


class StatusCause(msgspec.Struct, frozen=True):
    reason: str | None = None
    message: str | None = None


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    causes: tuple[StatusCause, ...] | None = None
    retry_after_seconds: int | None = None


class Status(msgspec.Struct, frozen=True):
    """An error in the form of the Kubernetes API."""

    kind: str | None = None
    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: StatusDetails | None = None


class NotServedError(APIError):
    """The server does not know the requested kind."""

    code = 404


class TooLargeError(ServerError):
    """The requested resourceVersion is newer than any that this server knows."""


class DisruptionBudgetError(ServerError):
    """A PodDisruptionBudget does not allow the eviction now."""


_STATUS: Final = msgspec.json.Decoder(Status)


def response_error(code: int, body: bytes, what: str) -> APIError:
    """The error of a response; `what` describes the request (`get pods`)."""
    try:
        status = _STATUS.decode(body)
    except (msgspec.DecodeError, RecursionError):
        status = Status()
    if status.kind == "Status" and status.message:
        return error_of(msgspec.structs.replace(status, code=code))
    return _generic(code, body, what)


def error_of(status: Status) -> APIError:
    """The error of a Status."""
    code = status.code or 500
    message = status.message or status.reason or f"status {code}"
    found = _BY_REASON.get(status.reason or "") or _BY_CODE.get(code)
    if found is not None:
        return found(message, code)
    if code == 429 or code >= 500:
        causes = (status.details.causes if status.details else None) or ()
        if any(cause.reason == _TOO_LARGE for cause in causes) or "Too large resource version" in message:
            return TooLargeError(message, code)
        if any(cause.reason == _BUDGET for cause in causes):
            return DisruptionBudgetError(message, code)
        return ServerError(message, code)
    return APIError(message, code)


def _generic(code: int, body: bytes, what: str) -> APIError:
    text = " ".join(body[:500].decode(errors="replace").split())
    message = _GENERIC.get(code)
    if message is None:
        if code >= 500:
            message = f'an error on the server ("{text}") has prevented the request from succeeding'
        else:
            message = f"the server responded with the status code {code} but did not return more information"
        text = ""
    message = f"{message} ({what})"
    if text and code not in (401, 404):
        message = f"{message}: {text}"
    return error_of(Status(code=code, message=message))


# Remedies

UNAUTHORIZED: Final = (
    "The API server does not accept the credentials: check whether the token or certificate has expired, "
    "and whether the kubeconfig is for this cluster"
)
ANONYMOUS: Final = (
    "No credentials were sent: the kubeconfig's user has none, or the server's address is not https"
)
FORBIDDEN: Final = (
    "Bind this user to the ClusterRoles system:kube-scheduler and system:volume-scheduler, "
    "or to a role that allows this request"
)
NOT_SERVED: Final = (
    "Install the definition of this kind, upgrade the API server, or disable the plugin that needs it"
)
NOT_TRUSTED: Final = (
    "The certificate authority in the kubeconfig must be the one that signed the API server's certificate, "
    "and the server's address (or tls-server-name) must be one of the names in it"
)
NOT_PLAIN: Final = "The address of the API server must begin with https://"
NOT_THERE: Final = "Check whether the API server is running, and whether its address is correct"


def remedy(error: APIError) -> str:
    """What to do about an error; empty if it is enough to retry."""
    text = str(error)
    match error:
        case UnauthorizedError():
            return UNAUTHORIZED
        case ForbiddenError():
            return ANONYMOUS if '"system:anonymous"' in text else FORBIDDEN
        case NotServedError():
            return NOT_SERVED
    if "failed to verify certificate" in text:
        return NOT_TRUSTED
    if "HTTP request to an HTTPS server" in text:
        return NOT_PLAIN
    if "dial tcp" in text:
        return NOT_THERE
    return ""


def explained(error: APIError) -> str:
    """The text of an error, with its remedy."""
    text = remedy(error)
    return f"{str(error).rstrip('.')}. {text}" if text else str(error)


# In the log

_QUERY: Final = re.compile(r'\?[^"\s]*')
"""The query of a URL: the timeout of a watch is random and says nothing about the cause."""


class OnceLogger:
    """The problems of one operation that is retried: each cause is logged when it first occurs.

    Repetitions are logged at debug level. When the operation works again, that is logged too.
    """

    def __init__(self, log: logging.Logger, level: int = logging.ERROR) -> None:
        self._log = log
        self._level = level
        self.unresolved = ""
        """The cause that was logged last, until it is resolved."""

    def log(self, problem: str, cause: str = "") -> None:
        """Logs a problem. `cause` distinguishes causes where the text of the problem does not."""
        cause = cause or _QUERY.sub("", problem)
        level = logging.DEBUG if cause == self.unresolved else self._level
        self._log.log(level, "%s", problem, stacklevel=2)
        self.unresolved = cause

    def resolved(self, message: str) -> None:
        """The operation works; logged only if a problem was."""
        if self.unresolved:
            self._log.info("%s", message, stacklevel=2)
            self.unresolved = ""
