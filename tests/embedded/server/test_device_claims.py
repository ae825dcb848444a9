"""Rules of ResourceClaims that the recorded answers of kube-apiserver do not show."""

from __future__ import annotations

from typing import Any

from bayplan.embedded.server.embedded import open_api
from bayplan.embedded.server.kinds import RESOURCE_CLAIMS
from bayplan.embedded.server.objects import ObjectAPI

REQUEST = {"name": "r", "exactly": {"deviceClassName": "c"}}
RESULT: dict[str, Any] = {"request": "r", "driver": "a.com", "pool": "p", "device": "d"}


def allocate(api: ObjectAPI, **result: Any) -> dict[str, Any]:
    claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [REQUEST]}}}
    created = api.create(RESOURCE_CLAIMS, claim, "default")
    created["status"] = {"allocation": {"devices": {"results": [{**RESULT, **result}]}}}
    updated = api.update(RESOURCE_CLAIMS, created, subresource="status")
    (found,) = updated["status"]["allocation"]["devices"]["results"]
    assert isinstance(found, dict)
    return found


def test_consumed_capacity_of_writers_in_this_process_is_canonical() -> None:
    found = allocate(open_api(clock=lambda: 0.0, seed=1), consumedCapacity={"bandwidth": "3000000000"})
    assert found["consumedCapacity"] == {"bandwidth": "3G"}
