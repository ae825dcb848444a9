"""Volumes and everything that can happen to them: in the end each pod runs, with its own volumes in reach.

The PV controller and the provisioner are small ones of the test, and unreliable for the first minute: they
take volumes away again, give up, and are slow. So is the API server: writes are rejected, or carried out and
their answers lost.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any, Final

import pytest
from msgspec.structs import replace

from bayplan.api.node import Node
from bayplan.api.node_selectors import compile_terms, terms_match
from bayplan.api.storage import (
    BIND_COMPLETED_ANNOTATION,
    SELECTED_NODE_ANNOTATION,
    PersistentVolume,
    PersistentVolumeClaim,
)
from bayplan.errors import ConflictError, ServerError, UnknownOutcomeError
from bayplan.state.volume_binding import (
    AssumedClaim,
    AssumedVolume,
    expected_claim,
    expected_volume,
)
from bayplan.testing.builders import make_node, make_pod, make_pv, make_pvc, make_storage_class

from .running import Cluster, World, running, virtual

TROUBLE_SECONDS: Final = 60
LATER_SECONDS: Final = 600
PODS: Final = 12
ZONES: Final = ("a", "b")

CONFIG = """
profiles:
- pluginConfig:
  - name: VolumeBinding
    args: {bindTimeoutSeconds: 15}
"""


class Unreliable(Cluster):
    """Writes of volumes and claims may fail, with or without effect."""

    rng: random.Random | None = None

    async def update(self, item: Any) -> Any:
        rng = self.rng
        if rng is None or not isinstance(item, PersistentVolume | PersistentVolumeClaim):
            return await super().update(item)
        await asyncio.sleep(rng.choice((0, 0, 0.1, 2)))
        match rng.randrange(8):
            case 0:
                raise ConflictError("changed")
            case 1:
                raise ServerError("etcd is away")
            case 2:
                await super().update(item)
                raise UnknownOutcomeError("no answer")
        return await super().update(item)


class Controllers:
    """What has to happen to claims and volumes besides scheduling."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self.world = world
        self.rng: random.Random | None = rng
        self._made = 0

    def happens(self, likelihood: float) -> bool:
        return self.rng is not None and self.rng.random() < likelihood

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.7)
            for claim in self.world.store.list(PersistentVolumeClaim):
                if not claim.is_fully_bound and not self.happens(0.5):
                    self.reconcile(claim)

    def reconcile(self, claim: PersistentVolumeClaim) -> None:
        store = self.world.store
        given = next((volume for volume in store.list(PersistentVolume) if volume.is_for(claim)), None)
        node_name = claim.annotations.get(SELECTED_NODE_ANNOTATION)
        if given is not None:
            if self.happens(0.3):
                store.update(replace(given, spec=replace(given.spec, claim_ref=None)))
            else:
                self.complete(claim, given)
        elif node_name is not None:
            if self.happens(0.3):
                kept = {key: value for key, value in claim.annotations.items() if key == "kept"}
                store.update(replace(claim, metadata=replace(claim.metadata, annotations=kept)))
            else:
                zone = store.get(Node, node_name).labels["zone"]
                self._made += 1
                volume = make_pv(f"new-{self._made}", claim=claim, on_nodes_with={"zone": [zone]})
                self.complete(claim, store.create(volume))

    def complete(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        store = self.world.store
        notes = {**claim.annotations, BIND_COMPLETED_ANNOTATION: "yes"}
        meta = replace(claim.metadata, annotations=notes)
        store.update(replace(claim, metadata=meta, spec=replace(claim.spec, volume_name=volume.name)))
        store.update(replace(volume, status=replace(volume.status, phase="Bound")))


@pytest.mark.parametrize("seed", range(15))
@virtual
async def test_each_pod_ends_where_its_volumes_are(seed: int) -> None:
    rng = random.Random(seed)
    async with running(
        *(make_node(f"n{i}", cpu="100", labels={"zone": ZONES[i % 2]}) for i in range(4)),
        make_storage_class("static", provisioner="kubernetes.io/no-provisioner"),
        make_storage_class("made"),
        *(
            make_pv(f"v{i}", storage_class="static", on_nodes_with={"zone": [ZONES[i % 2]]})
            for i in range(
                2 * PODS
            )  # as many in each zone: a claim that was provisioned may tie its pod to one
        ),
        config=CONFIG,
        kind_of_cluster=Unreliable,
    ) as world:
        assert isinstance(world.cluster, Unreliable)
        world.cluster.rng = rng
        controllers = Controllers(world, rng)
        working = asyncio.ensure_future(controllers.run())
        for i in range(PODS):
            kinds = rng.choice((("static",), ("made",), ("static", "made")))
            for kind in kinds:
                world.store.create(make_pvc(f"{kind}-{i}", storage_class=kind, annotations={"kept": "yes"}))
            await world.create(make_pod(f"p{i}", claims=[f"{kind}-{i}" for kind in kinds]))
            await world.after(rng.random() * 5)
        await world.after(TROUBLE_SECONDS)
        world.cluster.rng = controllers.rng = None
        await world.after(LATER_SECONDS)
        working.cancel()

        claims, volumes = world.store.list(PersistentVolumeClaim), world.store.list(PersistentVolume)
        by_name = {volume.name: volume for volume in volumes}
        assert [claim.name for claim in claims if not claim.is_fully_bound] == []
        assert [claim.name for claim in claims if not by_name[claim.spec.volume_name].is_for(claim)] == []
        assert [claim.name for claim in claims if "kept" not in claim.annotations] == []
        for i in range(PODS):
            pod = world.pod(f"p{i}")
            assert pod.spec.node_name, world.message(pod.name)
            labels = world.store.get(Node, pod.spec.node_name).labels
            for volume in pod.spec.volumes:
                assert volume.persistent_volume_claim is not None
                claim = world.store.get(
                    PersistentVolumeClaim, volume.persistent_volume_claim.claim_name, "default"
                )
                affinity = by_name[claim.spec.volume_name].spec.node_affinity
                assert affinity is not None
                assert affinity.required is not None
                terms = compile_terms(affinity.required.node_selector_terms)
                assert terms_match(terms, labels, pod.spec.node_name)
        objects = world.context.cluster.objects
        assert [d.name for d in objects.of(AssumedVolume) if expected_volume(objects, d.name) is d.item] == []
        assert [
            d.name for d in objects.of(AssumedClaim) if expected_claim(objects, d.name, d.namespace) is d.item
        ] == []
