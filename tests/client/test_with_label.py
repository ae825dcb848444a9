"""An informer indexes its objects by label once the key was looked up, whatever happens to them."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from bayplan.api.cluster_api import Change, WatchEvent
from bayplan.api.pod import Pod
from bayplan.client.informer import Informer
from bayplan.simulate.memory.store import MemoryCluster, MemoryStore
from bayplan.simulate.virtual_time import run_virtual
from bayplan.testing.builders import make_pod


class IgnoringHandler:
    def added(self, item: Pod) -> None: ...
    def updated(self, old: Pod, new: Pod) -> None: ...
    def deleted(self, item: Pod) -> None: ...


def random_pod(rng: random.Random, version: int) -> Pod:
    labels = {key: rng.choice("xy") for key in "ab" if rng.random() < 0.7}
    name, namespace, uid = rng.choice("pqr"), rng.choice("st"), rng.choice("12")
    pod = make_pod(name, namespace=namespace, uid=uid, labels=labels)
    return replace(pod, metadata=replace(pod.metadata, resource_version=str(version)))


@pytest.mark.parametrize("seed", range(20))
def test_the_index_is_what_a_search_would_find(seed: int) -> None:
    async def main() -> None:
        rng = random.Random(seed)
        pods = Informer(MemoryCluster(MemoryStore()), Pod, IgnoringHandler())
        for version in range(60):
            some = [random_pod(rng, version) for _ in range(rng.randint(0, 4))]
            if rng.random() < 0.3:
                pods.replace(list({pod.key: pod for pod in some}.values()), str(version))
            for pod in some:
                change = rng.choice((Change.ADDED, Change.MODIFIED, Change.DELETED))
                pods.apply([WatchEvent(change, pod, str(version))])
            for namespace, key, value in (("s", "a", "x"), ("t", "b", "y")):
                wanted = [p for p in pods.all() if p.namespace == namespace and p.labels.get(key) == value]
                found = pods.with_label(namespace, key, value)
                assert sorted(found, key=lambda p: p.key) == sorted(wanted, key=lambda p: p.key)

    run_virtual(main())
