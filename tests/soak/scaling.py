"""How the CPU time of one scheduling attempt grows with the size of one object. Run it by hand:

    python -m tests.soak.scaling [--size N] [CASE ...]

Each case has something of which a tenant may put thousands into one object, or of which there may be
thousands on one node. The attempt is timed for n, 2n and 4n of it. A factor near 2 for each doubling is
linear; a factor near 4 is quadratic, so that one object of the largest size the API server accepts may
take the scheduler's time for many seconds. Times depend on the machine, so no test asserts them.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from bayplan.api.meta import Object
from bayplan.api.pod import ContainerPort, Pod
from bayplan.scheduler.core import SchedulingCore
from bayplan.testing.builders import (
    make_claim_volume,
    make_expression,
    make_node,
    make_node_affinity,
    make_node_term,
    make_pdb,
    make_pod,
    make_pod_affinity,
    make_pod_term,
    make_pv,
    make_pvc,
    make_spread,
    make_storage_class,
    make_toleration,
)

HOST: Final = "kubernetes.io/hostname"

Case = tuple[list[Object], Pod]
"""Objects, assigned pods among them, and the pod to schedule."""

CASES: Final[dict[str, Callable[[int], Case]]] = {}


def case(make: Callable[[int], Case]) -> Callable[[int], Case]:
    CASES[make.__name__] = make
    return make


def nodes(**labels: str) -> list[Object]:
    return [make_node(f"n{i}", labels={HOST: f"n{i}", **labels}, pods=9999, cpu=1000) for i in range(4)]


def keys(count: int) -> Iterator[str]:
    return (f"k{i}" for i in range(count))


@case
def affinity_keys(n: int) -> Case:
    """Required affinity with distinct topology keys, which the nodes have."""
    known = nodes(**dict.fromkeys(keys(n), "v"))
    other = make_pod("other", labels={"app": "web"}, node="n0")
    terms = [make_pod_term(key, {"app": "web"}) for key in keys(n)]
    return [*known, other], make_pod(affinity=make_pod_affinity(required=terms))


@case
def affinity_missing_keys(n: int) -> Case:
    other = make_pod("other", labels={"app": "web"}, node="n0")
    terms = [make_pod_term(key, {"app": "web"}) for key in keys(n)]
    return [*nodes(), other], make_pod(affinity=make_pod_affinity(required=terms))


@case
def affinity_selectors(n: int) -> Case:
    other = make_pod("other", labels=dict.fromkeys(keys(n), "v"), node="n0")
    terms = [make_pod_term(HOST, {key: "v"}) for key in keys(n)]
    return [*nodes(), other], make_pod(affinity=make_pod_affinity(required=terms))


@case
def anti_affinity(n: int) -> Case:
    other = make_pod("other", labels={"app": "web"}, node="n0")
    terms = [make_pod_term(HOST, {key: "v"}) for key in keys(n)]
    return [*nodes(), other], make_pod(affinity=make_pod_affinity(anti_required=terms))


@case
def preferred_affinity(n: int) -> Case:
    other = make_pod("other", labels={"app": "web"}, node="n0")
    terms = [(1, make_pod_term(key, {"app": "web"})) for key in keys(n)]
    return [*nodes(**dict.fromkeys(keys(n), "v")), other], make_pod(
        affinity=make_pod_affinity(preferred=terms)
    )


@case
def carried_anti_affinity(n: int) -> Case:
    """Terms of an assigned pod that all select the incoming one."""
    terms = [make_pod_term(key, {"app": "web"}) for key in keys(n)]
    other = make_pod("other", node="n0", affinity=make_pod_affinity(anti_required=terms))
    return [*nodes(), other], make_pod(labels={"app": "web"})


@case
def spread(n: int) -> Case:
    constraints = [make_spread(key, labels={"app": "web"}) for key in keys(n)]
    return nodes(**dict.fromkeys(keys(n), "v")), make_pod(labels={"app": "web"}, spread=constraints)


@case
def tolerations(n: int) -> Case:
    """As many tolerations as taints, in the opposite order."""
    taints = [f"{key}=v:NoSchedule" for key in keys(n)]
    known: list[Object] = [make_node(f"n{i}", taints=taints) for i in range(4)]
    return known, make_pod(tolerations=[make_toleration(key, "v") for key in reversed(list(keys(n)))])


@case
def preferred_taints(n: int) -> Case:
    taints = [f"{key}=v:PreferNoSchedule" for key in keys(n)]
    known: list[Object] = [make_node(f"n{i}", taints=taints) for i in range(4)]
    return known, make_pod(tolerations=[make_toleration(key, "w") for key in keys(n)])


@case
def host_ports(n: int) -> Case:
    """Ports on one address, on a node that uses them on another."""
    taken = [ContainerPort(host_port=i + 1, host_ip="10.0.0.1") for i in range(n)]
    ports = [ContainerPort(host_port=i + 1, host_ip="10.0.0.2") for i in range(n)]
    return [*nodes(), make_pod("other", node="n0", host_ports=taken)], make_pod(host_ports=ports)


@case
def host_ports_any_address(n: int) -> Case:
    """The last of many ports is used by the last of many."""
    taken = [ContainerPort(host_port=i + 1, protocol="UDP") for i in range(n)]
    return [*nodes(), make_pod("other", node="n0", host_ports=taken)], make_pod(host_ports=range(1, n + 1))


@case
def volumes_bound(n: int) -> Case:
    claims = [make_pvc(key, volume=f"pv-{key}", phase="Bound") for key in keys(n)]
    volumes = [make_pv(f"pv-{claim.name}", claim=claim) for claim in claims]
    return [*nodes(), *claims, *volumes], make_pod(volumes=map(make_claim_volume, keys(n)))


@case
def volumes_to_match(n: int) -> Case:
    """Claims without a class, and as many volumes to choose from."""
    claims = [make_pvc(key, storage_class="c") for key in keys(n)]
    volumes = [
        make_pv(f"pv-{key}", storage_class="c", on_nodes_with={HOST: ["n0"]}, capacity=f"{i + 1}Gi")
        for i, key in enumerate(keys(n))
    ]
    late = make_storage_class("c", provisioner="kubernetes.io/no-provisioner")
    return [*nodes(), late, *claims, *volumes], make_pod(volumes=map(make_claim_volume, keys(n)))


@case
def node_affinity(n: int) -> Case:
    terms = [make_node_term(make_expression(key, "In", "v")) for key in keys(n)]
    return nodes(), make_pod(affinity=make_node_affinity(*terms))


@case
def victims(n: int) -> Case:
    """Pods of lower priority on one node, all of which have to go."""
    lower = [make_pod(f"low-{i}", cpu=1, node="n0", priority=0) for i in range(n)]
    return [make_node("n0", cpu=n, pods=n + 1), *lower], make_pod(cpu=n, priority=9)


@case
def victims_with_budgets(n: int) -> Case:
    lower = [make_pod(f"low-{i}", cpu=1, node="n0", priority=0, labels={"app": f"a{i}"}) for i in range(n)]
    budgets = [make_pdb(f"b{i}", {"app": f"a{i}"}) for i in range(n)]
    return [make_node("n0", cpu=n, pods=n + 1), *lower, *budgets], make_pod(cpu=n, priority=9)


@case
def victims_with_affinity(n: int) -> Case:
    """Victims whose anti-affinity excludes the preemptor."""
    term = make_pod_affinity(anti_required=[make_pod_term(HOST, {"app": "web"})])
    lower = [make_pod(f"low-{i}", cpu=1, node="n0", priority=0, affinity=term) for i in range(n)]
    node = make_node("n0", cpu=n, pods=n + 1, labels={HOST: "n0"})
    return [node, *lower], make_pod(cpu=1, priority=9, labels={"app": "web"})


@case
def victims_with_ports(n: int) -> Case:
    lower = [make_pod(f"low-{i}", cpu=1, node="n0", priority=0, host_ports=[i + 1]) for i in range(n)]
    return [make_node("n0", cpu=n, pods=n + 1), *lower], make_pod(priority=9, host_ports=range(1, n + 1))


def cpu_seconds(objects: Sequence[Object], pod: Pod) -> float:
    """The CPU time of one attempt."""
    core = SchedulingCore()
    for item in objects:
        if isinstance(item, Pod):
            core.cluster.add_pod(item, item.spec.node_name)
        elif type(item).__name__ == "Node":
            core.cluster.set_node(item)  # type: ignore[arg-type]  # it is a Node
        else:
            core.cluster.objects.put(item)
    gc.collect()
    gc.disable()
    started = time.process_time()
    core.decide(pod)
    seconds = time.process_time() - started
    gc.enable()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description="How the time of an attempt grows.")
    parser.add_argument("cases", nargs="*", choices=[[], *CASES], help="all by default")
    parser.add_argument("--size", type=int, default=1000, help="n (default 1000)")
    args = parser.parse_args()
    print(f"{'':28}{'n':>9}{'2n':>9}{'4n':>9}   factors")
    for name in args.cases or CASES:
        seconds = [cpu_seconds(*CASES[name](args.size * factor)) for factor in (1, 2, 4)]
        factors = [late / early for early, late in pairwise(seconds)]
        times = "".join(f"{one * 1000:7.0f}ms" for one in seconds)
        print(f"{name:28}{times}   {factors[0]:.1f} {factors[1]:.1f}", flush=True)


if __name__ == "__main__":
    main()
