"""The API server's error responses as exceptions.

The server responds with a Status object; anything in between (a load balancer, a proxy) may respond with
anything. The texts for the latter are client-go's, which people know.
"""

from __future__ import annotations

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
