"""Errors of the embedded server, with the Status that a Kubernetes API server would send.

Each is also one of the errors of `bayplan.errors`, so code in this process handles them like those of a real
server. The texts are those of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bayplan.api.go_values import GoValueError, parse_uint
from bayplan.embedded.server.kinds import Resource
from bayplan.errors import APIError, ConflictError, GoneError, NotFoundError, ServerError

Details = Mapping[str, Any]

MAX_PROBLEMS: Final = 100
"""Maximum number of problems of one object in a response; 100,000 invalid entries would take gigabytes."""
_CHANGED_SINCE: Final = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


class StatusError(APIError):
    """A request failed. `code` is the HTTP status, `reason` the machine-readable reason."""

    reason: str
    details: Details | None

    def __init__(
        self, message: str, code: int | None = None, *, reason: str = "", details: Details | None = None
    ) -> None:
        super().__init__(message, code)
        self.reason = reason
        self.details = details

    @property
    def retry_after_seconds(self) -> int | None:
        return None if self.details is None else self.details.get("retryAfterSeconds")

    def status(self) -> dict[str, Any]:
        """The Status object of the response."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = dict(self.details)
        status["code"] = self.code
        return status


class AbsentError(StatusError, NotFoundError):
    """404"""


class ClashError(StatusError, ConflictError):
    """409"""


class ForgottenError(StatusError, GoneError):
    """410"""


class UnavailableError(StatusError, ServerError):
    """429 and 5xx: nothing was done; a retry may succeed."""


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One problem of an object: `field` is its path, `message` begins with the type of problem."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"

    def cause(self) -> dict[str, str]:
        return {"reason": self.reason, "message": self.message, "field": self.field}


def required(field: str, detail: str = "") -> FieldProblem:
    return FieldProblem(field, _joined("Required value", detail), "FieldValueRequired")


def forbidden_field(field: str, detail: str) -> FieldProblem:
    return FieldProblem(field, f"Forbidden: {detail}", "FieldValueForbidden")


def invalid_field(field: str, actual: Any, detail: str) -> FieldProblem:
    return FieldProblem(field, f"Invalid value: {shown(actual)}: {detail}", "FieldValueInvalid")


def duplicate(field: str, actual: Any, detail: str = "") -> FieldProblem:
    return FieldProblem(field, _joined(f"Duplicate value: {shown(actual)}", detail), "FieldValueDuplicate")


def unsupported(field: str, actual: Any, supported: Sequence[str]) -> FieldProblem:
    choices = ", ".join(f'"{choice}"' for choice in supported)
    return FieldProblem(
        field,
        f"Unsupported value: {shown(actual)}: supported values: {choices}",
        "FieldValueNotSupported",
    )


def too_many(field: str, count: int, limit: int) -> FieldProblem:
    message = f"Too many: {count}: must have at most {limit} items"
    return FieldProblem(field, message, "FieldValueTooMany")


def too_long(field: str, limit: int) -> FieldProblem:
    return FieldProblem(field, f"Too long: may not be more than {limit} bytes", "FieldValueTooLong")


def missing_reference(field: str, actual: Any, detail: str = "") -> FieldProblem:
    return FieldProblem(field, _joined(f"Not found: {shown(actual)}", detail), "FieldValueNotFound")


def shown(actual: Any) -> str:
    """A value as Kubernetes prints it in messages."""
    if isinstance(actual, bool):
        return "true" if actual else "false"
    if actual is None:
        return "null"
    if isinstance(actual, str):
        escaped = actual.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{escaped}"'
    if isinstance(actual, list):
        return f"[{','.join(map(shown, actual))}]"
    if isinstance(actual, dict):
        return f"{{{','.join(f'{shown(key)}:{shown(part)}' for key, part in actual.items())}}}"
    return str(actual)


def aggregated(texts: Sequence[str]) -> str:
    """Several errors in one message, as Kubernetes joins them."""
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]" if texts else ""


def _joined(kind: str, detail: str) -> str:
    return f"{kind}: {detail}" if detail else kind


def _details(resource: Resource, name: str = "", **more: Any) -> dict[str, Any]:
    details: dict[str, Any] = {"name": name} if name else {}
    if resource.group:
        details["group"] = resource.group
    return {**details, "kind": resource.plural, **more}


def not_found(resource: Resource, name: str) -> AbsentError:
    return AbsentError(
        f'{resource.full_name} "{name}" not found', reason="NotFound", details=_details(resource, name)
    )


def not_simulated(why: str) -> StatusError:
    """A feature of real clusters that a simulated one cannot have."""
    return StatusError(why, 501, reason="NotImplemented", details={})


def no_such_path() -> AbsentError:
    return AbsentError("the server could not find the requested resource", reason="NotFound", details={})


def method_not_allowed() -> StatusError:
    message = "the server does not allow this method on the requested resource"
    return StatusError(message, 405, reason="MethodNotAllowed", details={})


def already_exists(resource: Resource, name: str) -> ClashError:
    return ClashError(
        f'{resource.full_name} "{name}" already exists',
        reason="AlreadyExists",
        details=_details(resource, name),
    )


def conflict(resource: Resource, name: str, why: str, subresource: str = "") -> ClashError:
    """The object is not in the state that the request requires."""
    kind = f"{resource.plural}/{subresource}" if subresource else resource.plural
    full_name = f"{resource.full_name}/{subresource}" if subresource else resource.full_name
    return ClashError(
        f'Operation cannot be fulfilled on {full_name} "{name}": {why}',
        reason="Conflict",
        details={**_details(resource, name), "kind": kind},
    )


def changed_since(resource: Resource, name: str) -> ClashError:
    return conflict(resource, name, _CHANGED_SINCE)


def another_uid(resource: Resource, key: str, name: str, wanted: str, stored: str) -> ClashError:
    """An update for an object of the same name that has been deleted since."""
    return conflict(
        resource,
        name,
        f"StorageError: invalid object, Code: 4, Key: /registry/{resource.plural}/{key}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, "
        f"UID in object meta: {stored}",
    )


def immutable_uid(resource: Resource, name: str, wanted: str) -> StatusError:
    """A patch for an object of the same name that has been deleted since: it would change the uid.

    The real server validates the metadata, and again with the fields of the kind: it reports the problem
    twice.
    """
    return invalid(resource, name, [invalid_field("metadata.uid", wanted, "field is immutable")] * 2)


def failed_precondition(resource: Resource, name: str, field: str, wanted: str, stored: str) -> ClashError:
    """A precondition of a deletion does not hold."""
    what = {"uid": "UID", "resourceVersion": "ResourceVersion"}[field]
    return ClashError(
        f'Operation cannot be fulfilled on {resource.kind} "{name}": the {what} in the precondition '
        f"({wanted}) does not match the {what} in record ({stored}). The object might have been "
        f"{'deleted and then recreated' if field == 'uid' else 'modified'}",
        reason="Conflict",
        details={**_details(resource, name), "kind": resource.kind},
    )


def too_large(why: str) -> StatusError:
    """413."""
    message = f"Request entity too large: {why}"
    return StatusError(message, 413, reason="RequestEntityTooLarge", details={})


def store_full(max_bytes: int) -> StatusError:
    """403, as for a quota: existing objects can still be read and deleted."""
    message = f"the store is full: its objects may have {max_bytes >> 20} MiB; delete some of them"
    return StatusError(message, 403, reason="Forbidden")


def bad_request(message: str) -> StatusError:
    return StatusError(message, 400, reason="BadRequest")


def forbidden(resource: Resource, name: str, why: str, causes: Sequence[Details] = ()) -> StatusError:
    named = f'{resource.full_name} "{name}"' if name else resource.full_name
    details = _details(resource, name, **({"causes": list(causes)} if causes else {}))
    return StatusError(f"{named} is forbidden: {why}", 403, reason="Forbidden", details=details)


def invalid(resource: Resource, name: str, problems: Sequence[FieldProblem]) -> StatusError:
    """422: the object is invalid; all problems are listed."""
    return _invalid(resource.full_kind, resource.group, resource.kind, name, problems)


def without_version(resource: Resource, name: str) -> StatusError:
    """422: an update has to contain a resourceVersion. The text has the resource, not the kind."""
    problem = invalid_field("metadata.resourceVersion", 0, "must be specified for an update")
    return _invalid(resource.full_name, resource.group, resource.plural, name, [problem])


def invalid_options(kind: str, problems: Sequence[FieldProblem]) -> StatusError:
    """The parameters of the request are invalid: ListOptions, DeleteOptions, PatchOptions."""
    return _invalid(f"{kind}.meta.k8s.io", "meta.k8s.io", kind, "", problems)


def _invalid(full: str, group: str, kind: str, name: str, problems: Sequence[FieldProblem]) -> StatusError:
    left_out = len(problems) - MAX_PROBLEMS
    problems = problems[:MAX_PROBLEMS]
    texts = list(dict.fromkeys(map(str, problems)))
    if left_out > 0:
        texts.append(f"and {left_out} more")
    message = aggregated(texts)
    details: dict[str, Any] = {"name": name} if name else {}
    if group:
        details["group"] = group
    details["kind"] = kind
    details["causes"] = [problem.cause() for problem in problems]
    return StatusError(f'{full} "{name}" is invalid: {message}', 422, reason="Invalid", details=details)


def too_old(version: int | str, oldest: int) -> ForgottenError:
    return ForgottenError(f"too old resource version: {version} ({oldest})", reason="Expired")


class ExpiredListError(ForgottenError):
    """410 for the token of a list, with another one: for the rest of the list as it is now."""

    def __init__(self, message: str, token: str) -> None:
        super().__init__(message, reason="Expired")
        self._token = token

    def status(self) -> dict[str, Any]:
        return {**super().status(), "metadata": {"continue": self._token}}


def expired_continue(token: str) -> ExpiredListError:
    # etcd3/errors.go: inconsistentContinue
    return ExpiredListError(
        "The provided continue parameter is too old to display a consistent list result. You can start a new "
        "list without the continue parameter, or use the continue token in this response to retrieve the "
        "remainder of the results. Continuing with the provided token results in an inconsistent list - "
        "objects that were created, modified, or deleted between the time the first chunk was returned and "
        "now may show up in the list.",
        token,
    )


def too_new(version: int, current: int) -> UnavailableError:
    return UnavailableError(
        f"Timeout: Too large resource version: {version}, current: {current}",
        504,
        reason="Timeout",
        details={
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        },
    )


def version_number(text: str) -> int:
    """A resourceVersion as a number.

    Raises:
        StatusError: 400, it is not a number.
    """
    try:
        return parse_uint(text)
    except GoValueError as error:
        message = f'invalid resource version: resourceVersion: Invalid value: "{text}": {error}'
        raise bad_request(message) from None
