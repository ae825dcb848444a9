"""The remedies in the log, each logged once."""

from __future__ import annotations

import logging

import pytest

from bayplan.client.api_errors import (
    ANONYMOUS,
    FORBIDDEN,
    NOT_PLAIN,
    NOT_SERVED,
    NOT_THERE,
    NOT_TRUSTED,
    UNAUTHORIZED,
    NotServedError,
    OnceLogger,
    explained,
)
from bayplan.client.requests import UnreachableError
from bayplan.errors import APIError, ForbiddenError, ServerError, UnauthorizedError


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        pytest.param(UnauthorizedError("Unauthorized"), UNAUTHORIZED, id="an expired token"),
        pytest.param(
            ForbiddenError('pods is forbidden: User "me" cannot list resource "pods"'),
            FORBIDDEN,
            id="a missing role",
        ),
        pytest.param(
            ForbiddenError('pods is forbidden: User "system:anonymous" cannot list resource "pods"'),
            ANONYMOUS,
            id="no credentials",
        ),
        pytest.param(
            NotServedError("the API server does not serve x of y"), NOT_SERVED, id="an unknown kind"
        ),
        pytest.param(
            UnreachableError('Get "https://a/b": dial tcp a:443: connect: connection refused'),
            NOT_THERE,
            id="no server",
        ),
        pytest.param(
            UnreachableError('Get "https://a/b": tls: failed to verify certificate: unknown authority'),
            NOT_TRUSTED,
            id="another authority",
        ),
        pytest.param(
            APIError("(get /api): Client sent an HTTP request to an HTTPS server."), NOT_PLAIN, id="http"
        ),
        pytest.param(ServerError("etcdserver: leader changed"), "", id="trouble that passes"),
    ],
)
def test_what_to_do_about(error: APIError, advice: str) -> None:
    assert explained(error) == (f"{str(error).rstrip('.')}. {advice}" if advice else str(error))


def test_each_cause_is_reported_when_it_comes_up(caplog: pytest.LogCaptureFixture) -> None:
    """The timeout of a watch is not part of the cause."""
    problems = OnceLogger(logging.getLogger("somewhere"))
    with caplog.at_level("INFO"):
        problems.resolved("fine")
        for seconds in (310, 450, 599):
            problems.log(f'Get "https://a/pods?timeoutSeconds={seconds}": connection refused')
        problems.log("Unauthorized")
        problems.resolved("fine again")
        problems.resolved("fine again")
        problems.log("Unauthorized")
    assert caplog.messages == [
        'Get "https://a/pods?timeoutSeconds=310": connection refused',
        "Unauthorized",
        "fine again",
        "Unauthorized",
    ]
