"""Workloads with devices: every pod gets one, in the whole scheduler."""

from __future__ import annotations

import time

import pytest

from bayplan.api.devices import ResourceClaim
from bayplan.api.pod import Pod
from bayplan.bench.runner import BenchError, Sizes, measure
from bayplan.bench.whole import measure_whole
from bayplan.bench.workload import DeviceSetup, Workload
from bayplan.bench.workloads import WORKLOADS, find_workload

from .fake_core import FakeCore

WITH_DEVICES = [workload for workload in WORKLOADS if workload.devices is not None]


@pytest.mark.parametrize("workload", WITH_DEVICES, ids=lambda workload: workload.name)
def test_every_pod_gets_a_device(workload: Workload) -> None:
    """Also where pods of one batch are deleted before the next comes: together they are more than devices."""
    assert workload.devices is not None
    pods = 60 if workload.devices.batch else 10
    found = measure_whole(workload, Sizes(nodes=5, init_pods=5, pods=pods))
    assert (found.scheduled, found.unscheduled, found.evicted) == (pods, 0, 0)


def test_devices_run_out() -> None:
    """Ten devices a node, one for each pod."""
    found = measure_whole(
        find_workload("SchedulingWithResourceClaimTemplate"), Sizes(nodes=1, init_pods=4, pods=8)
    )
    assert (found.scheduled, found.unscheduled) == (6, 2)


def test_what_the_claim_controller_does_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour of its CPU time changes nothing."""
    hour = 3600 * 10**9
    spent = 0
    clock, create = time.process_time_ns, DeviceSetup.owned_claims

    def slowly(self: DeviceSetup, pod: Pod) -> list[ResourceClaim]:
        nonlocal spent
        spent += hour
        return create(self, pod)

    monkeypatch.setattr(DeviceSetup, "owned_claims", slowly)
    monkeypatch.setattr(time, "process_time_ns", lambda: clock() + spent)
    found = measure_whole(
        find_workload("SchedulingWithResourceClaimTemplate"), Sizes(nodes=1, init_pods=4, pods=4)
    )
    assert spent == 8 * hour
    assert found.cpu_us_per_pod * 1000 < hour


def test_deciding_alone_is_not_enough() -> None:
    with pytest.raises(BenchError, match="needs the whole scheduler"):
        measure(find_workload("FirstAvailable"), FakeCore(), Sizes(nodes=1, init_pods=0, pods=1))
