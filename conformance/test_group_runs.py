"""Runs with trees of groups and claims of groups: kube-scheduler still does what was recorded of it, and
kube-controller-manager creates the claims of groups as `bayplan up` does.

`tests/recorded/test_group_runs.py` plays the recorded runs with bayplan.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bayplan.api.decode import decode_object
from bayplan.api.groups import PodGroup
from bayplan.controllers.claims import claim_from_template
from conformance.group_recorder import KINDS, RELEASE, control_plane, record
from conformance.group_runs import CLAIM_GATES, claim, difference, group, members, recorded, scenarios
from conformance.harness.admin import Admin, Raw
from conformance.harness.control_plane import ControlPlane
from conformance.harness.controllers import CLAIM_CONTROLLER, start_controllers
from conformance.harness.process import wait_until
from conformance.harness.programs import Programs

CHOSEN = ("composite: too few groups", "composite: racks in a zone", "claims: a claim of the group")
TEMPLATE: Raw = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}


@pytest.fixture(scope="module")
def plane(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    if programs.release != RELEASE:
        pytest.skip(f"pod groups are those of Kubernetes {RELEASE}")
    directory: Path = tmp_path_factory.mktemp("groups")
    with control_plane(directory) as plane:
        yield plane


@pytest.mark.parametrize("name", CHOSEN)
def test_a_recorded_run_can_be_repeated(plane: ControlPlane, name: str) -> None:
    (run,) = [one for one in scenarios() if one["name"] == name]
    assert difference(recorded(run["kind"])[name], record(plane, run)) is None


def test_a_claim_of_a_group_is_created_as_bayplan_creates_it(plane: ControlPlane) -> None:
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "t", "namespace": "default"},
        "spec": {"metadata": {"labels": {"a": "b"}}, "spec": claim("any")["spec"]},
    }
    flags = [f"--feature-gates={','.join(f'{gate}=true' for gate in CLAIM_GATES)}"]

    async def create() -> None:
        async with Admin(plane.access()) as admin:
            await admin.clear(*KINDS)
            for item in (template, group("g", 2, "", **TEMPLATE), *members("g", 2, **TEMPLATE)):
                await admin.create(item)

    async def read(*kinds: str) -> list[list[Raw]]:
        async with Admin(plane.access()) as admin:
            return [await admin.list(kind) for kind in kinds]

    asyncio.run(create())
    with start_controllers(plane, CLAIM_CONTROLLER, flags=flags):
        wait_until(
            lambda: all("resourceClaimStatuses" in pod["status"] for pod in asyncio.run(read("Pod"))[0]),
            "all members have a claim",
        )
    pods, (stored,), (made,) = asyncio.run(read("Pod", "PodGroup", "ResourceClaim"))
    names = [{"name": "gpu", "resourceClaimName": made["metadata"]["name"]}]
    assert stored["status"]["resourceClaimStatuses"] == names
    assert [pod["status"]["resourceClaimStatuses"] for pod in pods] == [names, names]
    decoded: Any = decode_object({**group("g"), **stored})
    assert isinstance(decoded, PodGroup)
    expected = claim_from_template(template, decoded, "gpu")
    assert {key: made["metadata"][key] for key in expected["metadata"]} == expected["metadata"]
    assert made["spec"] == expected["spec"]
