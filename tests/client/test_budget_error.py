"""The API server's answer to an eviction that a PodDisruptionBudget does not allow."""

from __future__ import annotations

import json

import pytest

from bayplan.client.api_errors import DisruptionBudgetError, response_error
from bayplan.errors import ServerError


@pytest.mark.parametrize(
    ("details", "is_budget"),
    [
        pytest.param({"causes": [{"reason": "DisruptionBudget", "message": "needs 2"}]}, True, id="a budget"),
        pytest.param({"retryAfterSeconds": 1}, False, id="too many requests"),
    ],
)
def test_a_budget_is_not_an_overloaded_server(details: dict[str, object], is_budget: bool) -> None:
    """It is reported at once: waiting is left to whoever evicts pods."""
    status = {"kind": "Status", "code": 429, "reason": "TooManyRequests", "message": "no", "details": details}
    error = response_error(429, json.dumps(status).encode(), "create eviction")
    assert isinstance(error, ServerError)
    assert isinstance(error, DisruptionBudgetError) is is_budget
