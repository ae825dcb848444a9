"""Fault runs with capacity queues: pods of several queues and users, while limits and Queue objects change.

The rules, beside those of every life: whenever a pod gets a node, its queues, its user and all groups of its
user stay within their limits. What the queues count is what a recount of all assigned pods finds, at any
time and after every restart. In the end no pod waits that has room in its queue and fits on a node.

The recount for the limits adds up pods by what they name; it uses nothing of the engine.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from bayplan.api import volcano
from bayplan.api.meta import ObjectMeta, ResourceList
from bayplan.api.pod import Pod
from bayplan.config import (
    BayplanConfiguration,
    KubeSchedulerConfiguration,
    QueueDialect,
    QueuesConfiguration,
    default_config,
)
from bayplan.queues.active import CapacityQueues
from bayplan.queues.users import Use
from bayplan.queues.volcano.active import VolcanoQueues
from bayplan.queues.yunikorn.build import Partition
from bayplan.queues.yunikorn.checks import load
from bayplan.queues.yunikorn.config import PartitionConfig
from bayplan.scheduler.capacity import make_queues
from bayplan.scheduler.loop import Scheduler
from bayplan.scheduling_queue.queued import QueuedPod
from bayplan.simulate.memory.store import MemoryStore
from tests.faults.checks import Oversight
from tests.faults.objects import OURS
from tests.faults.workload import NAMESPACE, World

QUEUES_YAML: Final = """
partitions:
- name: default
  placementrules: [{{name: provided}}, {{name: fixed, value: root.d}}]
  queues:
  - name: root
    submitacl: '*'
    queues:
    - name: d
    - name: a
      resources: {{guaranteed: {{vcore: 1}}, max: {{vcore: {a}}}}}
      limits:
      - {{limit: ann, users: [ann], maxresources: {{vcore: 2}}, maxapplications: 1}}
      - {{limit: others, users: ['*'], maxresources: {{vcore: 3}}}}
      - {{limit: dev, groups: [dev], maxresources: {{vcore: 3}}, maxapplications: 2}}
    - name: p
      resources: {{max: {{vcore: {p}}}}}
      properties: {{preemption.delay: 1s}}
      queues:
      - name: b
        resources: {{guaranteed: {{vcore: 2}}}}
        properties: {{application.sort.policy: fair}}
      - name: c
        maxapplications: {apps}
        limits:
        - {{limit: ann, users: [ann], maxresources: {{vcore: 1500m}}}}
"""
LEAVES: Final = ("root.a", "root.a", "root.p.b", "root.p.c")
USERS: Final = {"ann": ["dev"], "bob": ["dev", "ops"], "eve": []}

VOLCANO_CONF: Final = """
actions: "enqueue, allocate, reclaim, preempt"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}, {{name: drf}}, {{name: {plugin}}}]
"""
VOLCANO_QUEUES: Final = ("a", "b", "c")


class YunikornWorld(World):
    """The same changes, with pods of applications in queues, whose limits change now and then."""

    def __init__(
        self, store: MemoryStore, rng: random.Random, trace: Callable[[str], None], folder: Path
    ) -> None:
        super().__init__(store, rng, trace)
        self._file = folder / "queues.yaml"
        self._write()
        self.config = _config(QueuesConfiguration(file=str(self._file)))
        self.add_actions([(2, self._change_limits)])

    def create_group(self) -> None:
        """Gangs of Coscheduling are left out: whether one has room is not what these lives ask."""
        self.create_several()

    def _change_limits(self) -> None:
        self._trace("queues.yaml changes")
        self._write()

    def _write(self) -> None:
        rng = self._rng
        sizes = {"a": rng.choice((3, 4, 6)), "p": rng.choice((2, 4)), "apps": rng.choice((1, 2))}
        self._file.write_text(QUEUES_YAML.format(**sizes), encoding="utf-8")

    def _create(self, pod: Pod) -> None:
        rng = self._rng
        leaf, user = rng.choice(LEAVES), rng.choice(sorted(USERS))
        names = {"queue": leaf, "applicationId": f"{leaf}-{user}-{rng.randint(0, 2)}"}
        groups = ", ".join(f'"{name}"' for name in USERS[user])
        notes = {"yunikorn.apache.org/user.info": f'{{"user": "{user}", "groups": [{groups}]}}'}
        meta = replace(pod.metadata, labels={**pod.labels, **names}, annotations=notes)
        super()._create(replace(pod, metadata=meta))


class VolcanoWorld(World):
    """The same changes, with Volcano's Queues and PodGroups, which come, change and go."""

    def __init__(
        self, store: MemoryStore, rng: random.Random, trace: Callable[[str], None], folder: Path
    ) -> None:
        super().__init__(store, rng, trace)
        file = folder / "volcano-scheduler.conf"
        conf = VOLCANO_CONF.format(plugin=rng.choice(("capacity", "proportion")))
        file.write_text(conf, encoding="utf-8")
        self.config = _config(QueuesConfiguration(dialect=QueueDialect.VOLCANO, file=str(file)))
        self.add_actions([(4, self._put_queue), (1, self._delete_queue), (4, self._put_group)])

    def begin(self) -> None:
        super().begin()
        for name in VOLCANO_QUEUES[:2]:
            self._save(volcano.Queue(metadata=ObjectMeta(name=name), spec=self._spec()))

    def create_group(self) -> None:
        self.create_several()

    def _spec(self) -> volcano.QueueSpec:
        rng = self._rng
        capability: ResourceList = {"cpu": rng.choice((1, 2, 4))} if rng.random() < 0.6 else {}
        deserved: ResourceList = {"cpu": 1} if rng.random() < 0.6 else {}
        return volcano.QueueSpec(weight=rng.randint(1, 3), capability=capability, deserved=deserved)

    def _put_queue(self) -> None:
        state = self._rng.choice(("", "Open", "Open", "Closed"))
        item = volcano.Queue(metadata=ObjectMeta(name=self._rng.choice(VOLCANO_QUEUES)), spec=self._spec())
        self._save(replace(item, status=volcano.QueueStatus(state=state)))

    def _delete_queue(self) -> None:
        name = self._rng.choice(VOLCANO_QUEUES)
        self._trace(f"queue {name} goes")
        self.store.delete(volcano.Queue, name)

    def _put_group(self) -> None:
        meta = ObjectMeta(name=f"g{self._rng.randint(0, 5)}", namespace=NAMESPACE)
        spec = volcano.PodGroupSpec(queue=self._rng.choice(VOLCANO_QUEUES), min_member=1)
        self._save(volcano.PodGroup(metadata=meta, spec=spec))

    def _save(self, item: volcano.Queue | volcano.PodGroup) -> None:
        """Creates an object, or replaces its spec and status."""
        known = {each.key: each for each in self.store.list(type(item))}.get(item.key)
        self._trace(f"{type(item).__name__} {item.name}: {item.spec} {item.status}")
        if known is None:
            self.store.create(item)
        else:
            self.store.update(replace(item, metadata=known.metadata))

    def _create(self, pod: Pod) -> None:
        rng = self._rng
        notes = {volcano.GROUP_ANNOTATION: f"g{rng.randint(0, 5)}"}
        if rng.random() < 0.2:
            notes = {volcano.QUEUE_ANNOTATION: rng.choice(VOLCANO_QUEUES)}
        super()._create(replace(pod, metadata=replace(pod.metadata, annotations=notes)))


QueueWorld = YunikornWorld | VolcanoWorld

WORLDS: Final[dict[str, type[YunikornWorld] | type[VolcanoWorld]]] = {
    "yunikorn": YunikornWorld,
    "volcano": VolcanoWorld,
}


def _config(queues: QueuesConfiguration) -> KubeSchedulerConfiguration:
    return replace(default_config(), bayplan=BayplanConfiguration(queues=queues))


def miscounted(scheduler: Scheduler) -> Iterator[str]:
    """What the queues count is what new queues count that see the same pods."""
    queues = scheduler.queues
    assert queues is not None
    queues.refresh()
    again = recount(scheduler)
    known = {queue.path: queue for queue in queues.partition.root.downwards()}
    for queue in again.partition.root.downwards():
        other = known.pop(queue.path, None)
        if other is None:
            if queue.used:
                yield f"queue {queue.path} is not known"
        elif (queue.used, queue.running, queue.leaving) != (other.used, other.running, other.leaving):
            yield (
                f"queue {queue.path} counts {other.used}, {other.running} groups, leaving {other.leaving}; "
                f"there are {queue.used}, {queue.running} groups, leaving {queue.leaving}"
            )
    for queue in known.values():
        if queue.used:
            yield f"queue {queue.path} counts {queue.used}, and is not known to a recount"
    ours, true = queues.partition.user_limits, again.partition.user_limits
    if (users := _uses(ours.users)) != (counted := _uses(true.users)):
        yield f"users count {users}; there are {counted}"
    if (groups := _uses(ours.user_groups)) != (counted := _uses(true.user_groups)):
        yield f"groups of users count {groups}; there are {counted}"


def _uses(uses: dict[str, dict[str, Use]]) -> dict[str, dict[str, Use]]:
    return {name: paths for name, paths in uses.items() if paths}


def recount(scheduler: Scheduler) -> CapacityQueues:
    """New queues with the limits of the old ones, that have seen all assigned and all pending pods."""
    queues, core = scheduler.queues, scheduler.core
    assert queues is not None
    again = _empty_copy(scheduler, queues)
    again.refresh()
    for pod, node_name in core.cluster.assigned_pods():
        if pod.spec.scheduler_name in core.frameworks:
            again.charge(pod, node_name)
    for number, pod in enumerate(scheduler.context.queue.pending_pods()):
        if not pod.spec.scheduling_gates:
            again.push(QueuedPod(pod, pod.key, 0.0, number), (number,))
    again.refresh()
    return again


def _empty_copy(scheduler: Scheduler, queues: CapacityQueues) -> CapacityQueues:
    settings, cluster = scheduler.config.bayplan.queues, scheduler.core.cluster
    assert settings is not None
    if isinstance(queues, VolcanoQueues):
        return make_queues(settings, cluster)
    partition = Partition(_parsed(Path(settings.file).read_text(encoding="utf-8")))
    # The file may have changed, and the scheduler has not read it yet.
    partition.user_limits.limits = queues.partition.user_limits.limits
    for queue in queues.partition.root.downwards():
        if (copy := partition.find(queue.path)) is not None:
            copy.ceiling, copy.max_groups = queue.ceiling, queue.max_groups
    return CapacityQueues(partition, cluster.pod_infos.of, dict)


@cache
def _parsed(text: str) -> PartitionConfig:
    return load(text).partitions[0]


def counts(scheduler: Scheduler, store: MemoryStore, found: Oversight) -> bool:
    """Whether a pod that could run, by its nodes alone, could do so by its queues, too.

    Whether it could preempt is not known: the check decides with DefaultPreemption, which queues replace.
    """
    if "could preempt" in found.text:
        return False
    pods = [pod for pod in store.list(Pod) if pod.key == found.subject]
    again = recount(scheduler)
    return all(again.blocking(pod) is None for pod in pods)


def over_limit(scheduler: Scheduler, pod: Pod) -> Iterator[str]:
    """The limits that a pod exceeds that is about to get a node."""
    if isinstance(scheduler.queues, VolcanoQueues):
        yield from _over_capability(scheduler, scheduler.queues, pod)
    else:
        yield from _over_max(scheduler, pod)


def _assigned(scheduler: Scheduler) -> Iterator[tuple[Pod, int]]:
    """Our pods that have a node, with their millicores."""
    for pod, _ in scheduler.core.cluster.assigned_pods():
        if pod.spec.scheduler_name == OURS:
            yield pod, _cpu(scheduler, pod)


def _cpu(scheduler: Scheduler, pod: Pod) -> int:
    return scheduler.core.cluster.pod_infos.of(pod).requests.get("cpu", 0)


def _paths(pod: Pod) -> list[str]:
    names = pod.labels.get("queue", "root.d").split(".")
    return [".".join(names[:count]) for count in range(1, len(names) + 1)]


def _application(pod: Pod) -> str:
    """Pods that name none, such as those with devices, share one."""
    return pod.labels.get("applicationId", "shared-nobody-0")


def _user(pod: Pod) -> str:
    return _application(pod).split("-")[1]


def _over_max(scheduler: Scheduler, pod: Pod) -> Iterator[str]:
    queues = scheduler.queues
    assert queues is not None
    used: Counter[str] = Counter()
    of_user: Counter[str] = Counter()
    apps: dict[str, set[str]] = {}
    for each, cpu in [*_assigned(scheduler), (pod, _cpu(scheduler, pod))]:
        for path in _paths(each):
            used[path] += cpu
            of_user[path] += cpu if _user(each) == _user(pod) else 0
            apps.setdefault(path, set()).add(_application(each))
    is_new = _application(pod) not in {_application(each) for each, _ in _assigned(scheduler)}
    for path in _paths(pod):
        queue = queues.partition.find(path)
        assert queue is not None
        limit = (queue.ceiling or {}).get("vcore")
        if limit is not None and used[path] > limit and _cpu(scheduler, pod):
            yield f"pod {pod.key} gets a node: {path} uses {used[path]} of {limit}"
        if is_new and queue.max_groups and len(apps[path]) > queue.max_groups:
            count = len(apps[path])
            yield f"pod {pod.key} gets a node: {path} runs {count} applications of {queue.max_groups}"
        limits = queues.partition.user_limits.limits.get(path)
        own = None if limits is None else limits.of_user(_user(pod))
        most = None if own is None else (own.max or {}).get("vcore")
        if most is not None and of_user[path] > most:
            yield f"pod {pod.key} gets a node: {_user(pod)} uses {of_user[path]} of {most} in {path}"


def _over_capability(scheduler: Scheduler, queues: VolcanoQueues, pod: Pod) -> Iterator[str]:
    objects = scheduler.core.cluster.objects
    name = _queue_of(queues, pod)
    if name == "default":
        return
    queue = objects.of(volcano.Queue).get(name)
    if queue is None or queue.status.state not in ("", "Open"):
        yield f"pod {pod.key} gets a node, but queue {name} does not take pods"
        return
    limit = queue.spec.capability.get("cpu")
    used = sum(cpu for each, cpu in _assigned(scheduler) if _queue_of(queues, each) == name)
    if limit is not None and used + _cpu(scheduler, pod) > int(limit) * 1000:
        yield f"pod {pod.key} gets a node: queue {name} uses {used} of {limit}"


def _queue_of(queues: VolcanoQueues, pod: Pod) -> str:
    named = pod.annotations.get(volcano.GROUP_ANNOTATION)
    if named is None:
        return pod.annotations.get(volcano.QUEUE_ANNOTATION, "default")
    group = queues.pod_group(f"{pod.namespace}/{named}")
    return "default" if group is None else group.spec.queue
