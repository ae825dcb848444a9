"""What holds in every history of pods in capacity queues; HISTORIES=10000 tries more of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from bayplan.api.pod import Pod
from bayplan.queues import tree
from bayplan.queues.active import CapacityQueues
from bayplan.queues.amounts import Amounts, fits, total
from bayplan.queues.preemption import within_guarantees
from bayplan.queues.records import PodGroupOf
from bayplan.queues.tree import Group, Queue, Task
from bayplan.queues.victims import candidates
from bayplan.queues.yunikorn.build import Partition
from bayplan.queues.yunikorn.checks import load
from bayplan.scheduling_queue.queued import QueuedPod, members_of
from bayplan.state.cluster import Cluster
from bayplan.testing.builders import make_pod
from tests.effort import examples

LEAVES = ("root.p.a", "root.p.b", "root.c", "root.d")
CAPACITY = {"cpu": 16_000, "memory": 64, "pods": 100}
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
HISTORIES = int(os.environ.get("HISTORIES") or examples(200))

limits = st.one_of(st.none(), st.integers(1, 6))


@st.composite
def trees(draw: st.DrawFn) -> str:
    """A valid configuration: two levels, some with limits."""
    parent = draw(st.one_of(st.none(), st.integers(4, 8)))

    def queue(name: str, depth: int, highest: int) -> str:
        ceiling, guaranteed = draw(limits), draw(st.one_of(st.none(), st.integers(1, 2)))
        ceiling = None if ceiling is None else min(max(ceiling, guaranteed or 1), highest)
        parts = []
        if guaranteed:
            parts.append(f"guaranteed: {{vcore: {guaranteed}}}")
        if ceiling:
            parts.append(f"max: {{vcore: {ceiling}}}")
        order, apps = draw(st.sampled_from(["fifo", "fair"])), draw(st.sampled_from([0, 0, 1, 2]))
        pad = "  " * depth
        text = f"{pad}- name: {name}\n{pad}  properties: {{application.sort.policy: {order}}}\n"
        if apps:
            text += f"{pad}  maxapplications: {apps}\n"
        return text + (f"{pad}  resources: {{{', '.join(parts)}}}\n" if parts else "")

    text = "partitions:\n- name: default\n  queues:\n  - name: root\n    submitacl: '*'\n    queues:\n"
    text += "    - name: p\n" + (f"      resources: {{max: {{vcore: {parent}}}}}\n" if parent else "")
    text += "      queues:\n" + queue("a", 3, parent or 9) + queue("b", 3, parent or 9)
    return text + queue("c", 2, 9) + queue("d", 2, 9)


actions = st.lists(
    st.one_of(
        st.tuples(
            st.just("push"), st.sampled_from(LEAVES), st.integers(0, 3), st.integers(1, 4), st.integers(0, 2)
        ),
        st.tuples(st.just("pop")),
        st.tuples(st.just("fail")),
        st.tuples(st.just("requeue"), st.integers(0, 50)),
        st.tuples(st.just("end"), st.integers(0, 50)),
        st.tuples(st.just("remove"), st.integers(0, 50)),
    ),
    max_size=60,
)


class History:
    """Plays actions, and knows all pods."""

    def __init__(self, text: str) -> None:
        self.queues = CapacityQueues(
            Partition(load(text).partitions[0]),
            Cluster().pod_infos.of,
            lambda: CAPACITY,
        )
        self.active: list[QueuedPod] = []
        self.failed: list[QueuedPod] = []
        """Pods that found no node, and are not active now."""
        self.running: list[Pod] = []
        self.count = 0

    def push(self, leaf: str, app: int, cpu: int, priority: int) -> None:
        self.count += 1
        labels = {"queue": leaf, "applicationId": f"{leaf}-{app}"}
        created = EPOCH + timedelta(seconds=self.count)
        pod = make_pod(f"p{self.count}", cpu=cpu, labels=labels, priority=priority, created=created)
        info = QueuedPod(pod, pod.key, float(self.count), self.count)
        self.active.append(info)
        self.queues.push(info, (-priority, float(self.count)))

    def pop(self) -> bool:
        info = self.next()
        if info is None:
            return False
        self.running.append(info.pod)
        self.queues.charge(info.pod, "n")
        return True

    def fail(self) -> None:
        info = self.next()
        if info is not None:
            self.failed.append(info)

    def requeue(self, which: int) -> None:
        if self.failed:
            info = self.failed.pop(which % len(self.failed))
            self.active.append(info)
            self.queues.push(info, (-info.pod.priority, info.timestamp))

    def next(self) -> QueuedPod | None:
        expected = self.plain_next()
        found = self.queues.pop()
        assert (found and found.key) == (expected and expected.key)
        if found is None:
            return None
        (info,) = members_of(found)
        self.active.remove(info)
        return info

    def end(self, which: int) -> None:
        if self.running:
            uid = self.running.pop(which % len(self.running)).uid
            self.queues.pod_ended(uid)
            self.queues.refund(uid)

    def remove(self, which: int) -> None:
        pending = [*self.active, *self.failed]
        if pending:
            info = pending[which % len(pending)]
            if info in self.active:
                self.active.remove(info)
                self.queues.remove(info)
            else:
                self.failed.remove(info)
            self.queues.pod_ended(info.pod.uid)

    def play(self, action: Sequence[object]) -> None:
        getattr(self, str(action[0]))(*action[1:])

    def plain_next(self) -> QueuedPod | None:
        """The next pod, found by looking at every pod in order."""
        self.queues.refresh()

        def visit(queue: Queue) -> QueuedPod | None:
            for child in tree.ordered_children(queue):
                found = visit(child)
                if found is not None:
                    return found
            for group in tree.ordered_groups(queue):
                if not group.tasks and not tree.may_start(queue, group.name):
                    continue
                own = [info for info in self.active if self.queues.group_if_known(info.pod) is group]
                for info in sorted(own, key=lambda each: (-each.pod.priority, each.sequence)):
                    if fits(tree.room(queue), self.queues.amounts_of(info.pod)):
                        return info
            return None

        return visit(self.queues.partition.root)

    def check(self) -> None:
        for queue in self.queues.partition.root.downwards():
            for kind, limit in (queue.ceiling or {}).items():
                assert queue.used.get(kind, 0) <= limit, "a queue is above its ceiling"
            parts: list[Amounts] = [child.used for child in queue.children.values()]
            if queue.is_leaf:
                parts = [task.amounts for group in queue.groups.values() for task in group.tasks.values()]
            assert total(parts) == queue.used, "the parts are not the whole"
            assert queue.running == sum(
                bool(group.tasks) for leaf in queue.downwards() for group in leaf.groups.values()
            )
        assert len(self.queues) == len(self.active)


@settings(max_examples=HISTORIES, deadline=None)
@given(trees(), actions)
def test_histories(text: str, played: list[tuple[object, ...]]) -> None:
    """No queue exceeds its ceiling, parts add up, and the next pod is the one that a plain search finds."""
    history = History(text)
    for action in played:
        history.play(action)
        history.check()


@settings(max_examples=HISTORIES, deadline=None)
@given(trees(), actions)
def test_nothing_starves(text: str, played: list[tuple[object, ...]]) -> None:
    """When everything that runs ends again and again, every pod that fits into its empty queue runs."""
    history = History(text)
    for action in played:
        history.play(action)
    while history.failed:
        history.requeue(0)
    for _ in range(len(history.active) + 1):
        while history.pop():
            pass
        while history.running:
            history.end(0)
    empty = {queue.path: tree.room(queue) for queue in history.queues.partition.root.downwards()}
    for info in history.active:
        group = history.queues.group_if_known(info.pod)
        assert isinstance(group, PodGroupOf)
        assert not fits(empty[group.queue.path], history.queues.amounts_of(info.pod))


@settings(max_examples=HISTORIES, deadline=None)
@given(trees(), actions)
def test_a_recount_finds_the_same(text: str, played: list[tuple[object, ...]]) -> None:
    """A scheduler that starts now has the same usage and order, once failed pods are active again."""
    history = History(text)
    for action in played:
        history.play(action)
    while history.failed:
        history.requeue(0)
    again = History(text)
    for pod in history.running:
        again.queues.charge(pod, "n")
    for info in history.active:
        copy = QueuedPod(info.pod, info.key, info.timestamp, info.sequence)
        again.active.append(copy)
        again.queues.push(copy, (-info.pod.priority, info.timestamp))
    for queue in history.queues.partition.root.downwards():
        other = again.queues.partition.find(queue.path)
        assert other is not None
        assert (queue.used, queue.pending, queue.running) == (other.used, other.pending, other.running)
    history.queues.refresh()
    again.queues.refresh()
    assert [info.key for info in history.queues] == [info.key for info in again.queues]


@st.composite
def parents(draw: st.DrawFn) -> list[tuple[int, list[tuple[int, list[int]]]]]:
    """Two parents with two leaves each: guarantees, 0 for none, and the amounts of the tasks of a leaf."""
    sizes = st.lists(st.integers(1, 4), max_size=5)
    leaf = st.tuples(st.integers(0, 5), sizes)
    return [(draw(st.integers(0, 9)), [draw(leaf), draw(leaf)]) for _ in range(2)]


@settings(max_examples=HISTORIES, deadline=None)
@given(parents(), st.sampled_from(["", "p0"]), st.integers(1, 6))
def test_victims_leave_every_queue_its_guarantee(
    tree_of: list[tuple[int, list[tuple[int, list[int]]]]], above: str, asked: int
) -> None:
    """A queue that loses something keeps its guarantee, whatever its parent or children use."""
    root = Queue("root", leaf=False)
    others = []
    for number, (guaranteed, leaves) in enumerate(tree_of):
        parent = Queue(f"p{number}", root, leaf=False)
        parent.guaranteed = {"vcore": guaranteed} if guaranteed else None
        others.append(parent)
        for name, (own, sizes) in zip("ab", leaves, strict=True):
            queue = Queue(name, parent)
            queue.guaranteed = {"vcore": own} if own else None
            group = Group(queue.path, queue)
            tree.add_group(group)
            for index, amount in enumerate(sizes):
                amounts = {"vcore": amount, "pods": 1}
                task = Task(f"{queue.path}{index}", group, amounts, place="n", created=float(index))
                group.tasks[task.key] = task
                tree.charge(queue, amounts)
            others.append(queue)
    asking = Queue("asking", root.children.get(above, root))
    asking.guaranteed = {"vcore": 100}
    request = {"vcore": asked, "pods": 1}
    tasks = list(candidates(asking, request, 0).tasks)
    alone = [within_guarantees(asking, request, [[task]]) for task in tasks]
    assert all(alone), "a candidate may be evicted by itself"
    chosen = within_guarantees(asking, request, [[task] for task in tasks])
    for queue in set(others) - set(asking.upwards()):
        below = (
            task
            for leaf in queue.downwards()
            for group in leaf.groups.values()
            for task in group.tasks.values()
        )
        lost = sum(task.amounts["vcore"] for task in below if task.key in chosen)
        limit = (queue.guaranteed or {}).get("vcore", 0)
        assert not lost or queue.used["vcore"] - lost >= limit
