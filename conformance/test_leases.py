"""Leader election with the real kube-scheduler as the other candidate, over one lease.

So whatever one of them writes, the other has to understand: the leader, the duration, and the release.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bayplan.client.http import KubernetesCluster
from bayplan.client.leader_election import ElectionSettings, LeaderElection, lease_client
from conformance.harness.admin import Admin, Raw
from conformance.harness.control_plane import KUBE_SCHEDULER, ControlPlane
from conformance.harness.process import Process

QUICK: Final = ElectionSettings(lease_duration=3.0, renew_deadline=2.0, retry_period=0.5)
US: Final = "bayplan_1"


def start_kube_scheduler(plane: ControlPlane, directory: Path) -> Process:
    """The real one, as a candidate for leadership."""
    config = directory / "scheduler.json"
    config.write_text(
        json.dumps(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "clientConnection": {"kubeconfig": str(plane.kubeconfig(KUBE_SCHEDULER))},
                "leaderElection": {"leaseDuration": "3s", "renewDeadline": "2s", "retryPeriod": "500ms"},
            }
        )
    )
    command: list[str | Path] = [plane.programs.kube_scheduler, "--config", config, "--secure-port", "0"]
    return Process("kube-scheduler", command, directory / "kube-scheduler.log")


def test_a_real_kube_scheduler_and_bayplan_take_turns(plane: ControlPlane, tmp_path: Path) -> None:
    leases: list[Raw] = []

    async def main() -> list[Raw]:
        async with (
            Admin(plane.access()) as admin,
            KubernetesCluster(plane.access(KUBE_SCHEDULER)) as cluster,
            asyncio.timeout(90),
        ):

            async def lease_when(true: Callable[[str], bool]) -> Raw:
                while True:
                    lease = await admin.find("Lease", QUICK.name, QUICK.namespace)
                    if lease is not None and true(lease["spec"]["holderIdentity"]):
                        leases.append(lease)
                        return lease
                    await asyncio.sleep(0.1)

            election = LeaderElection(
                lease_client(cluster.connections, QUICK), QUICK, US, events=cluster.events()
            )
            with start_kube_scheduler(plane, tmp_path) as theirs:
                await lease_when(bool)
                waiting = asyncio.ensure_future(election.acquire())
                await asyncio.sleep(5)
                assert not waiting.done(), "it is renewed in time, so no other takes it"
                assert election.leader == leases[0]["spec"]["holderIdentity"]
                theirs.stop()
            await waiting
            await lease_when(lambda holder: holder == US)
            holding = asyncio.ensure_future(election.hold())
            with start_kube_scheduler(plane, tmp_path):
                await asyncio.sleep(6)
                assert not holding.done(), "kube-scheduler leaves it alone as long as it is renewed"
                holding.cancel()
                await asyncio.wait([holding])
                assert await election.release()
                await lease_when(lambda holder: holder not in ("", US))
            events = await admin.send("GET", "/api/v1/namespaces/kube-system/events")
            items: list[Raw] = events["items"]
            return items

    events = asyncio.run(main())
    theirs, ours, again = leases
    assert shape(ours["spec"]) == shape(theirs["spec"])
    assert (ours["spec"]["leaseTransitions"], again["spec"]["leaseTransitions"]) == (1, 2)
    assert plane.forbidden(KUBE_SCHEDULER) == []
    messages = {event["message"]: event for event in events if event["reason"] == "LeaderElection"}
    our_event, their_event = (
        messages[f"{lease['spec']['holderIdentity']} became leader"] for lease in (ours, theirs)
    )
    assert shape(our_event) == shape(their_event)
    same = ("reason", "type", "count", "source")
    assert [our_event[name] for name in same] == [their_event[name] for name in same]


def shape(value: Any) -> Any:
    """What there is, without what it is: fields, and the length of times."""
    if isinstance(value, dict):
        return {name: shape(part) for name, part in value.items() if name != "managedFields"}
    if isinstance(value, str) and value.endswith("Z") and "T" in value:
        return len(value)
    return type(value).__name__
