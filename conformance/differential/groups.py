"""Scenarios with pod groups from a seed: groups of all kinds among single pods, in a cluster that changes.

A scenario is a run (`conformance/runs/groups/README.md`) without results. Some of its steps choose by the
state that they find: `group_playing.py` carries them out. Nodes and the constraints of members are those of
the other scenarios (`nodes.py`, `pods.py`).

What kube-scheduler decides by chance is avoided: groups are complete when they are first tried, and when room
is made, one of those that failed is left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from conformance.differential.configurations import make_configuration
from conformance.differential.drawing import APPS, HOST, ZONE, Draw, Raw, Theme
from conformance.differential.nodes import Nodes
from conformance.differential.pods import Pods
from conformance.group_runs import CONFIG, claim, composite, create, devices, group, using

ACTS: Final = 9
FLAVORS: Final = (*["plain"] * 4, *["preemption"] * 9, *["topology"] * 5, "claims", "trees")
LOW_PRIORITIES: Final = (0, 0, 0, 5, 10)
PRIORITIES: Final = (0, 5, 10, 50, 50, 100)
GATES: Final = {
    "plain": (),
    "preemption": (),
    "topology": ("TopologyAwareWorkloadScheduling",),
    "claims": ("DRAWorkloadResourceClaims",),
    "trees": ("TopologyAwareWorkloadScheduling", "CompositePodGroup"),
}
HELD: Final = [{"name": "example.com/hold"}]
SETTLE: Final = {"op": "settle"}
CALM: Final = {"op": "keep-waiting-groups", "count": 1}
NONE_WAITS: Final = {"op": "keep-waiting-groups", "count": 0}
PAUSE: Final = {"op": "pause"}
RUNNING: Final = {"op": "start-bound-pods"}


class GroupScenario:
    """Makes one scenario."""

    def __init__(self, seed: int, *, flavor: str = "") -> None:
        self.seed = seed
        draw = self._draw = Draw(f"groups {seed}")
        drawn = draw.choice(FLAVORS)
        self.flavor = flavor or drawn
        theme = Theme.drawn(draw)
        # Constraints of several kinds at once would leave most groups without a node.
        only = draw.choice(("spreads", "affine", "", ""))
        self._theme = replace(
            theme,
            spreads=only == "spreads",
            affine=only == "affine",
            preempts=False,
            volumes=False,
            owned=False,
            crowded=True,
        )
        self._nodes = Nodes(draw)
        self._pods = Pods(draw, self._theme, self._nodes)
        self._is_plain = draw.maybe(0.6)
        """Whether members ask for resources only."""
        self._has_priorities = self.flavor == "preemption" or draw.maybe(0.3)
        self._is_full = False
        """Whether the first pods are there, of low priority."""
        self._has_own_policy = self.flavor == "preemption" and draw.maybe(0.25)
        self._sizes: dict[str, int] = {}
        """By group, how many members it had at first."""
        self._gangs: list[str] = []
        self._made: dict[str, int] = {}
        """By group, how many members it was given."""
        self._priority: dict[str, int] = {}
        self._policy: dict[str, str] = {}
        self._held: list[str] = []

    def make(self) -> Raw:
        """The whole scenario."""
        draw = self._draw
        steps: list[Raw] = [{"op": "start"}]
        for _ in range(draw.randint(2, 4) if self._has_priorities else draw.randint(2, 7)):
            steps += self._new_node()
        if self.flavor == "claims":
            names = [step["object"]["metadata"]["name"] for step in steps[1:]]
            for number, name in enumerate(draw.some(names, 2)):
                steps += create(*devices(draw.randint(1, 3), name)[number > 0 :])
        if self._has_priorities:
            steps += self._budgets()
            steps += self._filling()
        self._is_full = True
        for _ in range(ACTS):
            steps += [*draw.choice(([], [CALM], [CALM], [NONE_WAITS])), *self._act(), SETTLE]
            if self._has_priorities:
                steps.append(RUNNING)
        gates = ["GenericWorkload", *GATES[self.flavor]]
        gates += ["PodGroupPreemptionPolicy"] if self._has_own_policy else []
        return {
            "name": f"groups-{self.seed}-{self.flavor}",
            "kind": "differential",
            "config": self._configuration(),
            "featureGates": dict.fromkeys(gates, True),
            "steps": steps,
        }

    def _configuration(self) -> Raw:
        return CONFIG | (make_configuration(self._draw, self._nodes) if self._draw.maybe(0.25) else {})

    # What happens

    def _act(self) -> list[Raw]:
        acts: tuple[tuple[float, Callable[[], list[Raw]]], ...] = (
            (0.30, self._new_group),
            (0.10, self._two_groups),
            (0.14, self._single_pods),
            (0.08 if self._has_priorities else 0.0, self._hasty_pods),
            (0.06, self._late_group),
            (0.06, self._more_members),
            (0.06, self._min_count),
            (0.09, self._delete_group),
            (0.04, self._release),
            (0.05, lambda: [CALM, *self._new_node()]),
            (0.04, self._change_node),
            (0.02, self._remove_node),
            (0.02, lambda: [CALM, {"op": "restart"}]),
        )
        left = self._draw.random()
        for share, act in acts:
            left -= share
            if left < 0:
                return act()
        return [CALM, {"op": "delete-some-pod", "choice": self._draw.random()}]

    def _filling(self) -> list[Raw]:
        """Pods and groups of low priority, which later ones may evict."""
        steps = []
        for _ in range(self._draw.randint(2, 5)):
            steps += self._single_pods() if self._draw.maybe(0.5) else self._new_group()
            steps += [SETTLE, RUNNING]
        return steps

    def _new_node(self) -> list[Raw]:
        node = self._nodes.make()
        node["metadata"]["labels"].setdefault("rack", self._draw.choice(("r1", "r2")))
        return create(node)

    def _change_node(self) -> list[Raw]:
        return [CALM, {"op": "update", "object": self._nodes.change()}] if self._nodes else self._new_node()

    def _remove_node(self) -> list[Raw]:
        return [CALM, {"op": "delete-node", "name": self._nodes.remove()}] if self._nodes else []

    def _budgets(self) -> list[Raw]:
        draw, made = self._draw, []
        for number in range(draw.choice((0, 0, 1, 2, 3))):
            allowed = draw.randint(0, 2)
            status = {
                "disruptionsAllowed": allowed,
                "currentHealthy": 3,
                "desiredHealthy": 1,
                "expectedPods": 3,
                "observedGeneration": 1,
            }
            item = {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": f"pdb-{number}", "namespace": "default"},
                "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": draw.choice(APPS)}}},
                "status": status,
            }
            made += create(item)
        return made

    # Groups

    def _new_group(self) -> list[Raw]:
        if self.flavor == "trees" and self._draw.maybe(0.6):
            return self._tree()
        made, pods, release = self._group()
        return [*made, *pods, *release]

    def _two_groups(self) -> list[Raw]:
        """Two groups whose objects come alternately, and a single pod between them."""
        one, other = self._group(), self._group()
        mixed = [step for pair in zip(one[1], other[1], strict=False) for step in pair]
        least = min(len(one[1]), len(other[1]))
        pods = [*mixed, *one[1][least:], *other[1][least:]]
        # While victims are deleted, the next group sees some of them, or none.
        between = self._pause()
        if self._draw.maybe(0.5):
            between = [*between, *self._single_pods()[:1], *between]
        return [*one[0], *other[0], *pods, *one[2], *between, *other[2]]

    def _hasty_pods(self) -> list[Raw]:
        """Something happens while a group waits for its victims, or for its next attempt."""
        group = [NONE_WAITS, *self._new_group(), *self._pause()]
        if self._draw.maybe(0.3):
            return [*group, *self._more_members()]
        pods = self._single_pods()
        for step in pods:
            if step["op"] == "create":
                step["object"]["spec"]["priority"] = self._draw.choice((0, 50, 100, 100))
        return [*group, *pods]

    def _late_group(self) -> list[Raw]:
        """The members are there before their group."""
        made, pods, release = self._group(has_all=True)
        return [*pods, *release, *made]

    def _group(
        self, *, has_all: bool = False, parent: str = "", priority: int | None = None
    ) -> tuple[list[Raw], list[Raw], list[Raw]]:
        """A group: the steps that create it, those of its members, and those that let it be tried."""
        draw = self._draw
        name = draw.name("g")
        size = draw.choice((1, 2, 2, 3, 3, 3, 4, 5, 7, 14))
        least = draw.choice((0, size, size, size, size, max(1, size - 1), max(1, size // 2)))
        if least and not has_all and draw.maybe(0.12):
            least = size + draw.randint(1, 2)
        self._sizes[name] = size
        if least:
            self._gangs.append(name)
        priority = self._priority[name] = self._drawn_priority() if priority is None else priority
        is_never = draw.maybe(0.07) and not parent
        policy = self._policy[name] = "Never" if is_never else "PreemptLowerPriority"
        given: Raw = {"priority": priority}
        if draw.maybe(0.5):
            given["disruptionMode"] = {"all": {}}
        if policy == "Never" and self._has_own_policy:
            given["preemptionPolicy"] = policy
        key = ""
        if self.flavor in ("topology", "trees") and draw.maybe(0.6):
            key = draw.choice((ZONE, ZONE, "rack", "disk", HOST))
        shared: Raw = {}
        steps: list[Raw] = []
        if self.flavor == "claims" and draw.maybe(0.6):
            wanted = draw.name("claim")
            steps += create(claim(wanted))
            shared = using(wanted)
            given |= shared
        pods = self._members(name, size, **shared)
        if self.flavor == "claims" and not shared:
            # Members that share a claim that is not the group's: docs/differences.md.
            for item in pods:
                wanted = draw.name("claim")
                steps += create(claim(wanted))
                item["spec"] |= using(wanted)
        held = draw.choice((0, 0, 0, size - 1))
        pods[held]["spec"]["schedulingGates"] = HELD
        gated = pods[held]["metadata"]["name"]
        release = [{"op": "ungate", "namespace": "default", "name": gated}]
        if draw.maybe(0.05) and not has_all:
            self._held.append(gated)
            release = []
        return [*steps, *create(group(name, least, parent, key, **given))], create(*pods), release

    def _tree(self) -> list[Raw]:
        draw = self._draw
        name, priority = draw.name("t"), self._drawn_priority()
        count = draw.randint(1, 3)
        least = draw.choice((0, count, count, max(1, count - 1)))
        key = draw.choice(("", "", ZONE, "rack"))
        mode: Raw = {"all": {}} if draw.maybe(0.3) else {"single": {}}
        steps = create(composite(name, least, key=key, priority=priority, disruptionMode=mode))
        pods: list[Raw] = []
        release: list[Raw] = []
        for _ in range(count):
            made, its, let = self._group(parent=name, has_all=True, priority=priority)
            steps, pods, release = steps + made, pods + its, release + let
        return [*steps, *pods, *release]

    def _members(self, name: str, count: int, **more: object) -> list[Raw]:
        made, first = [], self._made.get(name, 0)
        template = self._pod()
        for number in range(first, first + count):
            if self._draw.maybe(0.06):
                template = self._pod()
            spec = {
                **template["spec"],
                "priority": self._priority[name],
                "schedulingGroup": {"podGroupName": name},
                **more,
            }
            if self._policy[name] == "Never":
                spec["preemptionPolicy"] = "Never"
            if self._draw.maybe(0.004):
                spec["priority"] += 1
            meta = {**template["metadata"], "name": f"{name}-{number}", "namespace": "default"}
            made.append({**template, "metadata": meta, "spec": spec})
        self._made[name] = first + count
        return made

    def _pod(self) -> Raw:
        draw = self._draw
        if not self._is_plain:
            return self._pods.make()
        sizes = ("500m", "1", "1", "2") if self._has_priorities else ("250m", "500m", "1", "1", "2")
        resources = {"requests": {"cpu": draw.choice(sizes), "memory": "256Mi"}}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"labels": {"app": draw.choice(APPS)}},
            "spec": {
                "containers": [{"name": "c", "image": "img", "resources": resources}],
                "terminationGracePeriodSeconds": 0,
            },
        }

    def _drawn_priority(self) -> int:
        if not self._has_priorities:
            return 0
        return self._draw.choice(PRIORITIES if self._is_full else LOW_PRIORITIES)

    def _more_members(self) -> list[Raw]:
        name = self._some_group()
        if not name:
            return self._new_group()
        pods = self._members(name, self._draw.randint(1, 3))
        pods[0]["spec"]["schedulingGates"] = HELD
        ungate = {"op": "ungate", "namespace": "default", "name": pods[0]["metadata"]["name"]}
        return [*create(*pods), ungate]

    def _min_count(self) -> list[Raw]:
        if not self._gangs:
            return self._new_group()
        name = self._draw.choice(self._gangs)
        count = max(1, self._sizes[name] + self._draw.choice((-2, -1, -1, 1)))
        return [CALM, {"op": "minCount", "namespace": "default", "name": name, "minCount": count}]

    def _delete_group(self) -> list[Raw]:
        """The object of a group, and perhaps its members; perhaps a group of that name comes again."""
        name, draw = self._some_group(), self._draw
        if not name:
            return self._new_group()
        steps: list[Raw] = [CALM, {"op": "delete", "kind": "PodGroup", "name": name, "namespace": "default"}]
        if draw.maybe(0.5):
            steps += [{"op": "delete-members", "name": name}]
        elif draw.maybe(0.5):
            count = draw.randint(1, 3) if name in self._gangs else 0
            steps += [SETTLE, *create(group(name, count, "", priority=self._priority[name]))]
        return steps

    def _release(self) -> list[Raw]:
        if not self._held:
            return self._new_group()
        return [{"op": "ungate", "namespace": "default", "name": self._held.pop()}]

    def _some_group(self) -> str:
        return self._draw.choice(list(self._sizes)) if self._sizes else ""

    # Single pods

    def _single_pods(self) -> list[Raw]:
        draw, steps = self._draw, []
        for _ in range(draw.randint(1, 3)):
            item = self._pod()
            item = {**item, "metadata": {**item["metadata"], "name": draw.name("s"), "namespace": "default"}}
            item["spec"] = {**item["spec"], "priority": self._drawn_priority()}
            steps += [*create(item), *self._pause()]
        return steps

    def _pause(self) -> list[Raw]:
        """The next pod or group sees none of the victims of this one, and may evict what was bound now."""
        return [PAUSE, RUNNING] if self._has_priorities and self._is_full else []
