"""What-if beyond filters and scores: groups at Permit, volumes, device claims, custom plugins."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec.structs import replace

from bayplan.answers.whatif import Cluster, Outcome
from bayplan.api.devices import (
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceClaimTemplateSpec,
)
from bayplan.api.meta import ObjectMeta
from bayplan.api.node import Node
from bayplan.api.pod import Pod, PodResourceClaim
from bayplan.api.storage import PersistentVolumeClaim
from bayplan.api.workloads import POD_GROUP_LABEL, PodGroup, PodGroupSpec
from bayplan.framework.plugin_api import Plugin
from bayplan.framework.state import CycleState
from bayplan.framework.status import Status
from bayplan.plugins.library.coscheduling import Coscheduling
from bayplan.testing.builders import (
    make_device,
    make_device_class,
    make_device_request,
    make_node,
    make_pod,
    make_pv,
    make_pvc,
    make_resource_claim,
    make_resource_slice,
    make_storage_class,
)

ZONE = "topology.kubernetes.io/zone"


def nodes(count: int, cpu: str = "4") -> list[Node]:
    return [make_node(f"n{i}", cpu=cpu, memory="16Gi", labels={ZONE: "ab"[i % 2]}) for i in range(count)]


def group(name: str, wanted: int) -> PodGroup:
    meta = ObjectMeta(name=name, namespace="default")
    return PodGroup(metadata=meta, spec=PodGroupSpec(min_member=wanted))


def members(name: str, count: int, cpu: str = "1") -> list[Pod]:
    return [make_pod(f"{name}-{i}", cpu=cpu, labels={POD_GROUP_LABEL: name}) for i in range(count)]


# Groups


def test_a_group_that_fits_is_scheduled_together() -> None:
    objects = [*nodes(1), group("g", 3), *members("g", 3)]
    result = Cluster.from_objects(objects, plugins=[Coscheduling]).schedule()
    assert set(result.nodes.values()) == {"n0"}
    assert len(result.nodes) == 3


def test_a_group_that_does_not_fit_holds_no_room() -> None:
    """Three of four would fit; a single pod after them gets the room."""
    objects = [*nodes(1), group("g", 4), *members("g", 4, cpu="1200m"), make_pod("single", cpu="3")]
    cluster = Cluster.from_objects(objects, plugins=[Coscheduling])
    result = cluster.schedule()
    assert result.nodes == {"default/single": "n0"}
    assert all(result[f"g-{i}"].outcome is not Outcome.SCHEDULED for i in range(4))
    assert [pod.name for pod in cluster.pods_of("n0")] == ["single"]
    again = cluster.schedule()
    assert not again.scheduled


def test_an_incomplete_group_is_gated() -> None:
    objects = [*nodes(1), group("g", 3), *members("g", 2)]
    result = Cluster.from_objects(objects, plugins=[Coscheduling]).schedule()
    assert {one.outcome for one in result} == {Outcome.GATED}
    assert 'pod group "g" has 2 of 3 pods that it needs' in result["g-0"].reason


def test_state_of_plugins_does_not_pass_between_branches() -> None:
    """A group that was rejected backs off. In another branch it has not been tried."""
    cluster = Cluster.from_objects([*nodes(1), group("g", 3), *members("g", 3)], plugins=[Coscheduling])
    with cluster.branch() as b:
        b.add(make_pod("big", cpu="3500m", priority=9))
        assert not b.schedule()["g-0"].fits
    with cluster.branch() as b:
        assert b.schedule().fits


# Volumes


def test_a_volume_is_provisioned_on_the_node_of_its_pod() -> None:
    objects = [*nodes(2), make_storage_class("fast"), make_pvc("data", storage_class="fast")]
    cluster = Cluster.from_objects([*objects, make_pod("db", claims=["data"])])
    with cluster.branch() as b:
        first = b.schedule()["db"]
        assert first.fits
        [claim] = b._store.list(PersistentVolumeClaim)
        assert claim.is_fully_bound
        b.drain(first.node)
        b.schedule()
        other_zone = "n1" if first.node == "n0" else "n0"
        answer = b.can_schedule(replace(make_pod("db2", claims=["data"])))
        assert not answer, f"the volume is in the zone of {first.node}, not of {other_zone}"
        assert "didn't match PersistentVolume's node affinity" in answer.reason
    [claim] = cluster._store.list(PersistentVolumeClaim)
    assert not claim.spec.volume_name


def test_two_pods_do_not_get_the_same_volume() -> None:
    pins = {"kubernetes.io/hostname": ["n0"]}
    node = make_node("n0", cpu="4", labels={"kubernetes.io/hostname": "n0"})
    objects = [
        node,
        make_storage_class("local", provisioner="kubernetes.io/no-provisioner"),
        make_pv("disk", storage_class="local", on_nodes_with=pins),
        make_pvc("a", storage_class="local"),
        make_pvc("b", storage_class="local"),
        make_pod("one", claims=["a"]),
        make_pod("two", claims=["b"]),
    ]
    result = Cluster.from_objects(objects).schedule()
    assert result["one"].node == "n0"
    assert result["two"].outcome is Outcome.UNSCHEDULABLE
    assert "didn't find available persistent volumes to bind" in result["two"].reason


def test_a_claim_that_is_missing_is_named() -> None:
    result = Cluster.from_objects([*nodes(1), make_pod("db", claims=["data"])]).schedule()
    assert not result.fits
    assert any("PersistentVolumeClaim default/data is not in the dump" in w.message for w in result.warnings)


# Devices


def test_devices_are_given_once_and_come_back() -> None:
    template = ResourceClaimTemplate(
        metadata=ObjectMeta(name="gpu", namespace="default"),
        spec=ResourceClaimTemplateSpec(spec=make_resource_claim("x", make_device_request()).spec),
    )
    entry = PodResourceClaim(name="gpu", resource_claim_template_name="gpu")

    def with_claim(name: str) -> Pod:
        return make_pod(name, resource_claims=(entry,))

    objects = [
        *nodes(2),
        make_device_class("gpu"),
        make_resource_slice("s", make_device("d0"), make_device("d1"), node="n1"),
        template,
    ]
    cluster = Cluster.from_objects(objects)
    result = cluster.schedule([with_claim("a"), with_claim("b"), with_claim("c")])
    assert result.nodes == {"default/a": "n1", "default/b": "n1"}
    assert "cannot allocate all claims" in result["c"].reason
    cluster.delete("a")
    assert cluster.schedule(["c"])["c"].node == "n1"
    allocated = [claim for claim in cluster._store.all(ResourceClaim) if claim.status.allocation is not None]
    assert len(allocated) == 2
    assert int(cluster.capacity(with_claim("more"))) == 0


# Custom plugins


class Writes(Plugin):
    """Would write to the outside, and rejects one node."""

    written: ClassVar[list[str]] = []

    def filter(self, state: CycleState, pod: Pod, nodes: Any) -> Any:
        from bayplan.plugin import Reject, unschedulable

        yield Reject(nodes.label("zone") == "no", unschedulable("not here"))

    async def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        self.written.append(pod.name)
        return None

    def pre_bind_pre_flight(self, state: CycleState, pod: Pod, node_name: str) -> Status | None:
        return None


def test_points_that_write_are_not_run_and_named() -> None:
    result = Cluster.from_objects([*nodes(1), make_pod("p")], plugins=[Writes]).schedule()
    assert result.fits
    assert Writes.written == []
    assert [w.object for w in result.warnings] == ["Writes"]
    assert "PreBind of plugin Writes is not run" in result.warnings[0].message
