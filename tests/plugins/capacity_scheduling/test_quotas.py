"""CapacityScheduling: max, borrowing, and preemption of borrowers, as its model documents it."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.api.workloads import ElasticQuota, PodDisruptionBudget
from bayplan.plugins.library.capacity_scheduling import CapacityScheduling, Quotas, QuotaTree, make_tree
from bayplan.queues.model import Queue
from bayplan.scheduler.core import SchedulingCore
from bayplan.scheduler.cycle import Decision
from bayplan.scheduler.loop import Scheduler
from bayplan.simulate.memory.store import MemoryCluster, MemoryStore
from bayplan.simulate.virtual_time import current_loop, run_virtual
from bayplan.state.derived import NamespaceUsage, derived
from bayplan.state.hypothesis import Hypothesis
from bayplan.state.view import NodeColumns
from bayplan.testing.builders import make_node, make_pdb, make_pod
from bayplan.testing.plugin_checks import check_plugin
from bayplan.testing.samples import Samples, make_samples

from .quotas import PLUGINS, make_config, make_quota, pod_of

ONE, TWO = make_quota("one", {"cpu": 4}, {"cpu": 6}), make_quota("two", {"cpu": 4}, {"cpu": 6})


def make_core(*objects: Object) -> SchedulingCore:
    core = SchedulingCore(make_config(), plugins=PLUGINS)
    core.load([make_node("n", cpu="8"), *objects])
    return core


def victims(decision: Decision) -> list[str]:
    assert decision.post_filter is not None
    eviction = decision.post_filter.eviction
    return [] if eviction is None else [pod.name for pod in eviction.victims]


def running(namespace: str, count: int, **fields: Any) -> list[Pod]:
    return [pod_of(namespace, f"{namespace}-{number}", node="n", **fields) for number in range(count)]


def test_it_passes_the_checks() -> None:
    check_plugin(CapacityScheduling)
    samples = make_samples(1)
    quotas = [make_quota("default", {"cpu": 1, "memory": "1Gi"}, {"cpu": 2}), make_quota("other", {"cpu": 3})]
    check_plugin(CapacityScheduling, samples=[Samples([*samples.objects, *quotas], samples.pods)])


def test_without_quotas_nothing_changes() -> None:
    assert make_core().decide(pod_of("one", "p", "8")).fits
    assert make_core(ONE).decide(pod_of("free", "p", "8")).fits


def test_a_namespace_may_borrow_up_to_its_max() -> None:
    assert make_core(ONE, TWO, *running("one", 2)).decide(pod_of("one", "p")).fits
    decision = make_core(ONE, TWO, *running("one", 3)).decide(pod_of("one", "p"))
    assert not decision.fits
    assert "namespace one would use more than the max of its ElasticQuota (cpu)" in decision.message
    assert victims(decision) == []


def test_together_namespaces_stay_within_the_sum_of_min() -> None:
    """Without the other quota there is nothing to borrow."""
    decision = make_core(ONE, *running("one", 2)).decide(pod_of("one", "p"))
    assert "would use more than the sum of their min (cpu)" in decision.message


def test_a_lender_preempts_borrowers_whatever_their_priority() -> None:
    objects = (ONE, TWO, *running("one", 3, priority=1000), *running("two", 1))
    decision = make_core(*objects).decide(pod_of("two", "p", priority=0))
    assert not decision.fits
    assert len(victims(decision)) == 1
    assert victims(decision)[0].startswith("one-")


def test_a_borrower_loses_only_what_it_borrowed() -> None:
    """Evicting more would leave it with less than its min."""
    core = make_core(ONE, TWO, *running("one", 3))
    assert victims(core.decide(pod_of("two", "p", "4"))) == ["one-2"]
    core = make_core(ONE, TWO, *running("one", 2), pod_of("free", "f", "4", node="n"))
    assert victims(core.decide(pod_of("two", "p", "4"))) == []


def test_of_the_borrowers_the_least_important_is_the_victim() -> None:
    pods = [pod_of("one", f"one-{p}", node="n", priority=p) for p in (5, 1, 9)]
    core = make_core(ONE, TWO, *pods, *running("two", 1))
    assert victims(core.decide(pod_of("two", "p"))) == ["one-1"]


def test_above_its_min_a_namespace_preempts_only_its_own_pods() -> None:
    two = make_quota("two", {"cpu": 4}, {"cpu": 8})
    objects = (ONE, two, *running("one", 2, priority=0), *running("two", 2, priority=0))
    decision = make_core(*objects).decide(pod_of("two", "p", priority=10))
    assert victims(decision) in (["two-0"], ["two-1"])
    assert victims(make_core(*objects).decide(pod_of("two", "p", priority=0))) == []


def test_pods_without_quota_do_not_preempt_those_with_one() -> None:
    core = make_core(ONE, TWO, *running("one", 3, priority=0), pod_of("free", "f", node="n", priority=0))
    assert victims(core.decide(pod_of("free", "p", priority=10))) == ["f"]


def test_a_pod_that_never_preempts_waits() -> None:
    core = make_core(ONE, TWO, *running("one", 3), *running("two", 1))
    decision = core.decide(pod_of("two", "p", preemption_policy="Never"))
    assert victims(decision) == []
    assert "preemptionPolicy=Never" in decision.message


def test_nominated_pods_have_their_share() -> None:
    core = make_core(ONE, TWO, *running("one", 1))
    core.cluster.nominate(pod_of("one", "first", "4", priority=5), "n")
    assert not core.decide(pod_of("one", "p", "2", priority=5)).fits
    assert core.decide(pod_of("one", "p", "2", priority=6)).fits


def test_resources_that_no_quota_names_are_not_counted() -> None:
    core = make_core(ONE, TWO)
    assert core.decide(make_pod("p", namespace="one", cpu="1", memory="16Gi")).fits


def test_budgets_are_counted_as_by_default() -> None:
    budget = make_pdb("b", namespace="one", labels={"app": "a"}, allowed=0)
    assert isinstance(budget, PodDisruptionBudget)
    safe = pod_of("one", "safe", node="n", labels={"app": "a"}, priority=0)
    others = [pod_of("one", f"o{i}", node="n", priority=5) for i in range(2)]
    core = make_core(ONE, TWO, budget, safe, *others, *running("two", 1))
    assert victims(core.decide(pod_of("two", "p"))) == ["safe"]


def test_dry_runs_of_all_rows_at_once_are_those_of_each_row() -> None:
    rng = random.Random(16)
    answers = set()
    for _ in range(8):
        core = SchedulingCore(make_config(), plugins=PLUGINS)
        core.load([make_node(f"n{i}", cpu="8") for i in range(6)])
        for number in range(30):
            namespace, cpu = rng.choice(["one", "two", "free"]), str(rng.randrange(3))
            core.cluster.add_pod(pod_of(namespace, f"p{number}", cpu, memory="1Gi"), f"n{rng.randrange(6)}")
        for name in ("one", "two"):
            # The pod needs 3 cpus: a few have to be freed on its node.
            used = derived(core.cluster, NamespaceUsage).of(name)["cpu"] // 1000
            quota = make_quota(name, {"cpu": used, "memory": "99Gi"}, {"cpu": used + 2, "memory": "99Gi"})
            core.cluster.objects.put(quota)
        quotas = Quotas.of(NodeColumns(core.cluster), pod_of("one", "p", "3", memory="1Gi"))
        rows = core.cluster.order.tolist()
        changes = [[(slot, rng.choice([-1, -1, 0])) for slot in core.cluster.row_pods[row]] for row in rows]
        nodes = Hypothesis.on_few_rows(core.cluster, rows, changes)
        plain = [bool(quotas.without(nodes.changed_pods(row)[0]).problem()) for row in range(len(nodes))]
        assert quotas.over_without_victims(nodes).tolist() == plain
        answers.update(plain)
    assert answers == {False, True}


def test_usage_follows_the_cluster() -> None:
    core = make_core(ONE)

    def usage() -> dict[str, int]:
        return dict(derived(core.cluster, NamespaceUsage).of("one"))

    assert usage() == {}
    first = core.decide(pod_of("one", "a"))
    core.reserve(first)
    assert usage() == {"cpu": 2000}
    core.cluster.remove_pod(first.pod.uid)
    assert usage() == {}


def test_the_tree_of_quotas_is_that_of_a_recount() -> None:
    rng = random.Random(3)
    core = make_core(ONE)
    placed: list[Pod] = []
    for number in range(200):
        kept = derived(core.cluster, QuotaTree).root
        if number % 20 == 0:
            core.cluster.objects.put(make_quota(rng.choice(("one", "two")), {"cpu": rng.randrange(9)}))
        elif placed and rng.random() < 0.4:
            core.cluster.remove_pod(placed.pop(rng.randrange(len(placed))).uid)
        else:
            placed.append(pod_of(rng.choice(("one", "two", "free")), f"p{number}"))
            core.cluster.add_pod(placed[-1], "n")
        tree = derived(core.cluster, QuotaTree).root
        assert (tree is kept) == (number % 20 != 0), "only another quota makes another tree"
        again = make_tree(core.cluster.objects.of(ElasticQuota), derived(core.cluster, NamespaceUsage).of)
        assert described(tree) == described(again)


def described(tree: Queue) -> list[object]:
    return [(each.path, each.used, each.guaranteed, each.ceiling) for each in tree.downwards()]


def test_the_documented_demo() -> None:
    """Two quotas of min 4 and max 6, eight cpus: the first borrows two, and gives them back to the second."""

    async def main() -> tuple[int, int, int, int]:
        store = MemoryStore(clock=current_loop().wall_time)
        scheduler = Scheduler(MemoryCluster(store), make_config(), plugins=[CapacityScheduling])
        serving = asyncio.ensure_future(scheduler.run())
        for item in (make_node("a", cpu="4"), make_node("b", cpu="4"), ONE, TWO):
            store.create(item)
        for number in range(4):
            store.create(pod_of("one", f"one-{number}"))
        await asyncio.sleep(10)
        first = _bound(store, "one")
        for number in range(2):
            store.create(pod_of("two", f"two-{number}"))
        await asyncio.sleep(120)
        second = (_bound(store, "one"), _bound(store, "two"))
        store.create(make_quota("three", {"cpu": 2}))
        await asyncio.sleep(120)
        serving.cancel()
        return first, *second, _bound(store, "one")

    # In the end a third quota has something to lend, but the nodes are full.
    assert run_virtual(main()) == (3, 2, 2, 2)


def _bound(store: MemoryStore, namespace: str) -> int:
    return sum(pod.namespace == namespace and bool(pod.spec.node_name) for pod in store.list(Pod))


def test_quotas_are_read_from_files() -> None:
    from bayplan.api.decode import parse_objects

    (found,) = parse_objects(
        b"apiVersion: scheduling.x-k8s.io/v1alpha1\nkind: ElasticQuota\n"
        b"metadata: {name: q, namespace: a}\nspec: {min: {cpu: 4}, max: {cpu: 6}}\n"
    )
    assert isinstance(found, ElasticQuota)
    assert found.spec.max == {"cpu": 6}
