"""Results of recorded scenarios of YuniKorn and Volcano, in the format of their README.

Sessions of Volcano are replayed by `volcano_session.py`. `configs` uses only `bayplan.queues.yunikorn`.
`runs` replays the steps of a scenario on `yunikorn_core.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from bayplan.framework.args import Duration
from bayplan.queues import tree
from bayplan.queues.amounts import Amounts, covers_common, is_positive, is_zero, minus, plus
from bayplan.queues.tree import Preemption, Queue
from bayplan.queues.yunikorn.build import Partition
from bayplan.queues.yunikorn.checks import load
from bayplan.queues.yunikorn.config import QueueConfigError
from bayplan.queues.yunikorn.placement import PlacementError, Submission, build_rules
from conformance.reference.volcano_session import Session
from conformance.reference.yunikorn_core import Core
from conformance.reference.yunikorn_model import Application, Ask, Node, Placeholders, Release

Json = dict[str, Any]


def evaluate(vector: Mapping[str, Any]) -> Json:
    """The result of one scenario."""
    scenario = vector["scenario"]
    if "podGroups" in scenario:
        return Session(scenario).result()
    if "steps" in scenario:
        return Run(scenario).result()
    return config_result(scenario["config"])


def config_result(text: str) -> Json:
    try:
        config = load(text)
    except QueueConfigError as error:
        return {"error": error.problem}
    partitions: Json = {}
    for each in config.partitions:
        try:
            partition = Partition(each)
        except QueueConfigError as error:
            partitions[each.name] = {"loadError": error.problem}
            continue
        shown: Json = {
            "queues": {queue.path: queue_result(partition, queue) for queue in partition.root.downwards()},
            "nodeSort": {"type": partition.node_sort, "weights": dict(partition.node_weights)},
            "preemption": partition.preempts,
            "quotaPreemption": partition.enforces_quota,
        }
        try:
            shown["rules"] = [rule.described() for rule in build_rules(each.placement_rules)]
            shown["rules"].append({"name": "recovery", "parameters": {"queue": "root.@recovery@"}})
        except QueueConfigError as error:
            shown["rulesError"] = error.problem
        partitions[each.name] = shown
    return {"partitions": partitions}


def queue_result(partition: Partition, queue: Queue) -> Json:
    policy, settings = queue.policy, partition.settings[queue.path]
    shown: Json = {
        "leaf": queue.is_leaf,
        "managed": queue.is_managed,
        "status": queue.state.value,
        "sort": policy.order.value,
        "prioritySorting": policy.by_priority,
        "priority": tree.current_priority(queue),
        "priorityOffset": policy.priority_offset,
        "priorityFence": policy.priority_fence,
        "preemptionEnabled": policy.preemption is not Preemption.DISABLED,
        "preemptionFence": policy.preemption is Preemption.FENCE,
        "preemptionDelay": str(Duration.of(policy.preemption_delay)),
        "quotaPreemptionDelay": str(Duration.of(policy.quota_delay)),
        "maxApps": queue.max_groups,
        "running": queue.running,
        "max": queue.ceiling,
        "guaranteed": queue.guaranteed,
        "allocated": queue.used,
        "pending": queue.pending,
        "preempting": queue.leaving,
        "headroom": tree.room(queue),
        "allocatingAccepted": sorted(queue.starting),
    }
    if settings.template is not None:
        template = settings.template
        shown["template"] = {
            "maxApplications": template.max_groups or None,
            "properties": dict(template.properties),
            "maxResource": template.ceiling,
            "guaranteedResource": template.guaranteed,
        }
    return shown


class Run:
    """Replays the steps of one scenario."""

    def __init__(self, scenario: Mapping[str, Any]) -> None:
        self.scenario = scenario
        config = load(scenario["config"])
        self.core = Core(Partition(config.partitions[0]), scenario["age"], scenario.get("predicates"))
        self.sequence = 0
        self.removed: list[Application] = []

    def result(self) -> Json:
        steps = [self.step(step) for step in self.scenario["steps"]]
        core = self.core
        result: Json = {
            "steps": steps,
            "nodes": {
                node.name: {"allocations": sorted(node.tasks), "available": _nonzero(node.available)}
                for node in core.nodes.values()
            },
            "reservations": sorted(
                f"{node.name}|{key}"
                for app in core.apps.values()
                for key, (node, _) in app.reservations.items()
            ),
            "apps": {app.name: app_result(app) for app in [*self.removed, *core.apps.values()]},
        }
        if not any(step["op"] == "config" for step in self.scenario["steps"]):
            # After a reload YuniKorn keeps priorities that were computed with the offsets of before.
            result["queues"] = {queue.path: queue_result(core.partition, queue) for queue in self._queues()}
        return result

    def step(self, step: Mapping[str, Any]) -> Any:
        return getattr(self, f"step_{re.sub('[A-Z]', lambda m: '_' + m[0].lower(), step['op'])}")(step)

    def step_node(self, step: Mapping[str, Any]) -> str | None:
        name = step["name"]
        if name in self.core.nodes:
            return (
                f"failed to add node {name} to partition [rm]default, error: "
                f"partition [rm]default has an existing node {name}, node name must be unique"
            )
        self.core.nodes[name] = Node(name, step["resources"], dict(step["resources"]))
        self.core.resize(step["resources"], 1)
        return None

    def step_drain_node(self, step: Mapping[str, Any]) -> None:
        if step["name"] in self.core.nodes:
            self.core.nodes[step["name"]].schedulable = False

    def step_remove_node(self, step: Mapping[str, Any]) -> Json | None:
        core = self.core
        node = core.nodes.pop(step["name"], None)
        if node is None:
            return None
        for ask in list(node.reservations.values()):
            core.unreserve(ask.app, ask)
        released, confirmed = [], []
        for ask in sorted(node.tasks.values(), key=lambda each: each.key):
            app, queue = ask.app, ask.group.queue
            if app.name not in core.apps:
                continue
            if ask.swap is not None:
                other, again = ask.swap, ask
                if ask.is_placeholder:
                    if ask.place != other.place:
                        self._replace(ask)
                        shrink = minus(other.amounts, ask.amounts)
                        if any(amount < 0 for amount in shrink.values()):
                            tree.charge(queue, shrink)
                        confirmed.append(other.key)
                        released.append(ask.key)
                        continue
                    again = other
                other.swap = ask.swap = None
                core.mark_pending_again(again)
            if ask.key not in app.tasks:
                continue
            core.remove_allocation(ask, replaced=False)
            tree.refund(queue, ask.amounts)
            if ask.leaving:
                tree.unmark_leaving(queue, ask.amounts)
            released.append(ask.key)
        core.resize(node.total, -1)
        return {"released": sorted(released), "confirmed": sorted(confirmed)}

    def step_app(self, step: Mapping[str, Any]) -> Json:
        core, name = self.core, step["app"]
        if name in core.apps:
            problem = f"adding application {name} to partition [rm]default, but application already existed"
            return {"rejected": problem}
        app = Submission(
            name,
            step.get("queue", ""),
            step.get("user") or "nobody",
            tuple(step.get("groups") or ()),
            step.get("tags") or {},
        )
        placeholders = step.get("placeholderAsk") or {}
        try:
            queue = core.partition.queue_for(app, placeholders)
        except PlacementError as error:
            return {"rejected": str(error)}
        self.sequence += 1
        # All applications are created now, in the order of the steps.
        created = core.now + self.sequence * 1e-6
        added = Application(name, queue, placeholders, user=app.user, user_groups=app.groups, created=created)
        core.apps[name] = added
        tree.add_group(added)
        return {"queue": queue.path}

    def _ask(self, step: Mapping[str, Any], app: Application, place: str = "") -> Ask:
        return Ask(
            step["key"],
            app,
            step["resources"],
            created=float(step.get("created", 0)),
            priority=step.get("priority", 0),
            place=place,
            role=step.get("taskGroup", ""),
            required_place=step.get("requiredNode", ""),
            is_placeholder=step.get("placeholder", False),
            is_originator=step.get("originator", False),
            may_preempt=not step.get("noPreemptOther", False),
            opted_out=step.get("noPreemptSelf", False),
        )

    def step_ask(self, step: Mapping[str, Any]) -> str | None:
        core = self.core
        app = core.apps.get(step["app"])
        if app is None:
            return f"failed to find application {step['app']}"
        if (problem := _amounts_problem(step["resources"])) is not None:
            return problem
        if step["key"] in app.asks:
            return None
        ask = self._ask(step, app)
        app.created = min(app.created, ask.created)
        if app.state in ("New", "Completing"):
            app.fire("run")
        self._remember(app, ask)
        tree.add_pending(app, sum(ask.amounts.values()), ask.priority)
        app.insert(ask)
        return None

    def _remember(self, app: Application, ask: Ask) -> None:
        app.asks[ask.key] = ask
        if ask.is_placeholder:
            app.placeholders.setdefault(ask.role, Placeholders()).count += 1

    def step_alloc(self, step: Mapping[str, Any]) -> str | None:
        core = self.core
        app, node = core.apps.get(step["app"]), core.nodes.get(step["node"])
        if app is None:
            return f"failed to find application {step['app']}"
        if node is None:
            return f"failed to find node {step['node']}"
        if (problem := _amounts_problem(step["resources"])) is not None:
            return problem
        ask = self._ask(step, app, node.name)
        tree.charge(app.queue, ask.amounts)
        self._watch_quota(app.queue)
        node.add(ask)
        self._remember(app, ask)
        if app.state == "New":
            app.fire("run")
        core.add_to_app(ask, replaced=False)
        return None

    def _watch_quota(self, leaf: Queue) -> None:
        if self.core.partition.enforces_quota:
            for queue in leaf.upwards():
                if (
                    queue.is_managed
                    and queue.policy.quota_delay
                    and not is_zero(queue.ceiling)
                    and not covers_common(queue.ceiling, queue.used)
                ):
                    self.core.quota_due.add(queue.path)

    def step_schedule(self, step: Mapping[str, Any]) -> list[Json]:
        core, events = self.core, []
        for _ in range(step.get("cycles") or 300):
            before, start = self._reservations(), len(core.releases)
            found = core.cycle()
            after = self._reservations()
            event: Json = {}
            if found is not None:
                phase = {"AllocatedReserved": "reserved", "Replaced": "placeholder"}.get(found.kind, "normal")
                event = {
                    "result": found.kind,
                    "app": found.ask.group.name,
                    "key": found.ask.key,
                    "node": found.node.name,
                    "phase": phase,
                }
                if found.kind == "Replaced" and found.ask.swap is not None:
                    event["replaces"] = found.ask.swap.key
            if after - before:
                event["reserve"] = sorted(after - before)
            if before - after:
                event["unreserve"] = sorted(before - after)
            new = [each for each in core.releases[start:] if each.kind != "PLACEHOLDER_REPLACED"]
            if new:
                event["released"] = _released(new)
            if not event:
                break
            events.append(event)
        return events

    def _reservations(self) -> set[str]:
        return {
            f"{node.name}|{key}"
            for app in self.core.apps.values()
            for key, (node, _) in app.reservations.items()
        }

    def step_release(self, step: Mapping[str, Any]) -> Json:
        released = self._release(step["app"], step["key"])
        return {"key": step["key"], "released": released}

    def _release(self, app_name: str, key: str, kind: str = "") -> list[str]:
        core = self.core
        app = core.apps.get(app_name)
        if app is None:
            return []
        queue, released = app.queue, []
        task = app.tasks.get(key)
        if task is not None:
            assert isinstance(task, Ask)
            core.remove_allocation(task, replaced=False)
            node = core.nodes.get(task.place)
            if node is not None:
                if node.remove(task):
                    tree.refund(queue, task.amounts)
                if task.leaving:
                    tree.unmark_leaving(queue, task.amounts)
            released.append(key)
        if kind != "TIMEOUT":
            core.remove_ask(app, key)
        return released

    def _replace(self, held: Ask) -> Ask | None:
        """The real ask takes the place of its placeholder in the application."""
        core = self.core
        if held.key not in held.app.tasks:
            return None
        core.remove_allocation(held, replaced=True)
        ask = held.swap
        if ask is not None:
            core.add_to_app(ask, replaced=True)
            ask.swap = None
        return ask

    def step_confirm(self, step: Mapping[str, Any]) -> list[Json]:
        core = self.core
        waiting, core.releases = core.releases, []
        results = []
        for release in sorted(waiting, key=lambda each: each.ask.key):
            shown: Json = {"key": release.ask.key}
            if release.kind == "PLACEHOLDER_REPLACED":
                ask = self._confirm_swap(release.ask)
                if ask is not None:
                    shown |= {"confirmed": ask.key, "node": ask.place}
            else:
                self._release(release.ask.app.name, release.ask.key, release.kind)
            results.append(shown)
        return results

    def _confirm_swap(self, held: Ask) -> Ask | None:
        core, app = self.core, held.app
        if app.name not in core.apps:
            return None
        queue, ask = app.queue, self._replace(held)
        if ask is not None:
            node = core.nodes.get(held.place)
            if node is not None:
                smaller = {kind: amount - ask.amounts.get(kind, 0) for kind, amount in held.amounts.items()}
                if any(amount > 0 for amount in smaller.values()):
                    tree.refund(queue, smaller)
                node.remove(held)
                if ask.place == node.name:
                    node.add(ask)
                if held.leaving:
                    tree.unmark_leaving(queue, held.amounts)
        core.remove_ask(app, held.key)
        return ask

    def step_remove_app(self, step: Mapping[str, Any]) -> list[str] | None:
        core = self.core
        app = core.apps.pop(step["app"], None)
        if app is None:
            return None
        core.remove_all_asks(app)
        for amounts in (app.used, app.held):
            if not is_zero(amounts):
                tree.refund(app.queue, amounts)
        for task in app.tasks.values():
            if task.leaving:
                tree.unmark_leaving(app.queue, task.amounts)
        tree.remove_group(app)
        # As upstream: only the leaf forgets a group that is starting.
        app.queue.starting.discard(app.name)
        core.limits.refund(app, plus(app.used, app.held), ended=True)
        for task in app.tasks.values():
            node = core.nodes.get(task.place)
            if node is not None and isinstance(task, Ask):
                node.remove(task)
        for task in app.placeholder_tasks():
            if (known := app.placeholders.get(task.role)) is not None:
                known.timed_out += 1
        keys = sorted(app.tasks)
        app.tasks, app.used, app.held = {}, {}, {}
        app.fire("complete")
        self.removed.append(app)
        return keys or None

    def step_config(self, step: Mapping[str, Any]) -> Json:
        core = self.core
        before = {queue.path: (queue.ceiling, queue.policy.quota_delay) for queue in self._queues()}
        try:
            core.partition.reload(load(step["config"]).partitions[0])
        except QueueConfigError as error:
            return {"error": error.problem}
        for queue in self._queues():
            old, delay = before.get(queue.path, (None, 0.0))
            self._schedule_quota(queue, old, delay)
        return {}

    def _schedule_quota(self, queue: Queue, old: Amounts | None, old_delay: float) -> None:
        due, delay = self.core.quota_due, queue.policy.quota_delay
        if not delay or is_zero(queue.ceiling) or covers_common(queue.ceiling, queue.used):
            due.discard(queue.path)
            return
        assert queue.ceiling is not None
        if old is not None and is_zero(minus(old, queue.ceiling)):
            if not old_delay:
                due.add(queue.path)
        elif is_positive(minus(old or {}, queue.ceiling)):
            due.add(queue.path)

    def _queues(self) -> Iterable[Queue]:
        return self.core.partition.root.downwards()

    def step_clean_queues(self, step: Mapping[str, Any]) -> None:
        self.core.partition.clean()

    def step_quota(self, step: Mapping[str, Any]) -> list[Json] | None:
        released = _released(self.core.quota_preemption())
        return sorted(released, key=lambda each: str(each["key"])) or None


def _amounts_problem(amounts: Amounts) -> str | None:
    if is_zero(amounts):
        return "allocation contains no resources"
    if not is_positive(amounts):
        return "allocation contains negative resources"
    return None


def _released(releases: Iterable[Release]) -> list[Json]:
    return [
        {"app": each.ask.group.name, "key": each.ask.key, "type": each.kind, "message": each.message}
        for each in releases
    ]


def _nonzero(amounts: Amounts) -> dict[str, int]:
    return {kind: amount for kind, amount in amounts.items() if amount}


def app_result(app: Application) -> Json:
    return {
        "state": app.state,
        "allocated": _nonzero(app.used),
        "pending": _nonzero(app.pending),
        "placeholder": _nonzero(app.held),
        "placeholders": {
            name: {"count": each.count, "replaced": each.replaced, "timedOut": each.timed_out}
            for name, each in app.placeholders.items()
        },
        "waiting": {ask.key: sorted(ask.log) for ask in app.asks.values() if not ask.allocated and ask.log},
    }
