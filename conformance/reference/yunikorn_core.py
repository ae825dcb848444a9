"""YuniKorn's loop over nodes, reservations and placeholders, around the engine of `bayplan.queues`.

What decides is the engine: room, share, the order of queues and groups, user limits, who may start, and the
choice of victims are the functions that `bayplan run` calls. What is here exists only to repeat recorded
runs: one allocation for each cycle, nodes in YuniKorn's order, its reservations and its placeholder swaps,
which bayplan replaces by kube-scheduler's decisions.

application.go, queue.go, partition.go and node.go of apache/yunikorn-core.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from bayplan.queues import quota, tree, users, victims
from bayplan.queues.amounts import Amounts, covers_common, fits, fits_on, is_positive, is_zero, minus, plus
from bayplan.queues.tree import Queue, Task
from bayplan.queues.yunikorn.build import Partition
from conformance.reference.yunikorn_model import Application, Ask, Found, Node, Release
from conformance.reference.yunikorn_preemption import RESERVATION_DELAY, preempt

MAX_PREEMPTIONS: Final = 10
PREEMPTED: Final = "PREEMPTED_BY_SCHEDULER"


class Core:
    """One partition of YuniKorn at a moment."""

    def __init__(
        self, partition: Partition, now: float, predicates: Mapping[str, list[str]] | None = None
    ) -> None:
        self.partition = partition
        self.now = now
        self.predicates = predicates
        self.nodes: dict[str, Node] = {}
        self.apps: dict[str, Application] = {}
        self.releases: list[Release] = []
        """Not confirmed yet, in order."""
        self.quota_due: set[str] = set()
        """Paths of queues whose quota is enforced after its delay."""

    @property
    def limits(self) -> users.UserLimits:
        return self.partition.user_limits

    # Nodes

    def ordered_nodes(self, *, reserved: bool = False) -> list[Node]:
        nodes = [node for node in self.nodes.values() if reserved or not node.reservations]
        return sorted(nodes, key=lambda node: (self._node_score(node), node.name))

    def _node_score(self, node: Node) -> float:
        weights, used, weight = self.partition.node_weights, 0.0, 0.0
        for kind in sorted(node.total):
            amount = node.total[kind]
            if amount and (own := weights.get(kind, 0.0)):
                used += (1 - node.available.get(kind, 0) / amount) * own
                weight += own
        result = used / weight if weight else 0.0
        return 1 - result if self.partition.node_sort == "binpacking" else result

    def resize(self, change: Amounts, sign: int) -> None:
        root = self.partition.root
        size = plus(root.capacity, {kind: sign * amount for kind, amount in change.items()})
        root.capacity = {kind: amount for kind, amount in size.items() if amount}
        root.ceiling = root.capacity if is_positive(root.capacity) else None
        tree.limits_changed(root)

    def _accepts(self, ask: Ask, node: Node, *, allocate: bool = True) -> bool:
        if self.predicates is None:
            return True
        nodes = self.predicates.get(ask.key)
        if nodes is None or node.name in nodes:
            return True
        if allocate:
            ask.log.add("node not allowed")
        return False

    # One cycle

    def cycle(self) -> Found | None:
        root = self.partition.root
        if root.ceiling is None or not tree.has_pending(root):
            return None
        if any(app.reservations for app in self.apps.values()):
            found = self._commit(self._walk(root, self._try_reserved))
            if found is not None:
                return found
        if any(app.held for app in self.apps.values()) and tree.has_pending(root):
            found = self._walk(root, self._try_swap)
            if found is not None:
                return found
        if tree.has_pending(root):
            return self._commit(self._walk(root, self._try_normal))
        return None

    def _walk(self, queue: Queue, visit: Callable[[Queue], Found | None]) -> Found | None:
        if queue.is_leaf:
            return visit(queue)
        for child in tree.ordered_children(queue):
            found = self._walk(child, visit)
            if found is not None:
                return found
        return None

    def _commit(self, found: Found | None) -> Found | None:
        if found is None:
            return None
        ask, app = found.ask, found.ask.app
        if found.kind == "Reserved":
            self.reserve(app, found.node, ask)
            return None
        if found.kind in ("Unreserved", "AllocatedReserved"):
            self.unreserve(app, ask)
            if found.kind == "Unreserved":
                return None
        ask.place = found.node.name
        return found

    def reserve(self, app: Application, node: Node, ask: Ask) -> None:
        known = app.reservations.get(ask.key)
        if known is not None:
            if known[0] is node:
                return
            self.unreserve(app, ask)
        if ask.allocated:
            return
        if not ask.required_place and node.reservations:
            return
        if ask.required_place and any(not each.required_place for each in node.reservations.values()):
            return
        if not fits_on(node.total, ask.amounts):
            return
        node.reservations[ask.key] = ask
        app.reservations[ask.key] = (node, ask)

    def unreserve(self, app: Application, ask: Ask) -> None:
        known = app.reservations.pop(ask.key, None)
        if known is not None:
            known[0].reservations.pop(ask.key, None)

    def _may_start(self, app: Application) -> bool:
        return tree.may_start(app.queue, app.name) and self.limits.may_start(app)

    def _mark_starting(self, app: Application) -> None:
        if app.state == "Accepted":
            for queue in app.queue.upwards():
                queue.starting.add(app.name)

    # Reserved asks

    def _try_reserved(self, leaf: Queue) -> Found | None:
        room = tree.room(leaf)
        for app in sorted(
            (each for each in self.apps.values() if each.queue is leaf and each.reservations),
            key=lambda each: each.name,
        ):
            if app.state == "Accepted" and not self._may_start(app):
                continue
            found = self._try_reservations(app, room)
            if found is not None:
                self._mark_starting(app)
                return found
        return None

    def _try_reservations(self, app: Application, room: Amounts | None) -> Found | None:
        user_room = self.limits.room(app)
        for key, (node, ask) in sorted(app.reservations.items()):
            if key not in app.asks or ask.allocated:
                return Found("Unreserved", ask, node)
            if not (fits(user_room, ask.amounts) and fits(room, ask.amounts)):
                continue
            if ask.required_place and not fits_on(node.available, ask.amounts) and not ask.triggered:
                self._preempt_on_required_node(ask, node)
                continue
            if self._allocate(ask, node):
                return Found("AllocatedReserved", ask, node)
        for _, (reserved, ask) in sorted(app.reservations.items()):
            if ask.required_place or not (fits(user_room, ask.amounts) and fits(room, ask.amounts)):
                continue
            for node in self.ordered_nodes():
                if not node.schedulable or not fits_on(node.total, ask.amounts) or node is reserved:
                    continue
                if self._allocate(ask, node):
                    return Found("AllocatedReserved", ask, node, reserved)
        return None

    def _preempt_on_required_node(self, ask: Ask, node: Node) -> None:
        chosen = victims.required_place_victims(
            ask.amounts, node.available, node.tasks.values(), ask.priority
        )
        # As upstream: what the node lacks counts even where it is not asked for.
        left = dict(node.available)
        for victim in chosen:
            left = plus(left, victim.amounts)
        if not chosen or any(amount < 0 for amount in left.values()):
            ask.log.add("No fit on required node, preemption does not help")
            return
        self.evict(chosen, f"preempting allocations to free up resources to run daemon set ask: {ask.key}")
        ask.triggered = True

    def evict(self, chosen: list[Task], message: str) -> None:
        for victim in chosen:
            assert isinstance(victim, Ask)
            victim.leaving = True
            tree.mark_leaving(victim.group.queue, victim.amounts)
            self.releases.append(Release(PREEMPTED, victim, message))

    # Placeholders

    def _try_swap(self, leaf: Queue) -> Found | None:
        for group in tree.ordered_groups(leaf):
            assert isinstance(group, Application)
            if group.held:
                found = self._swap(group)
                if found is not None:
                    return found
        return None

    def _swap(self, app: Application) -> Found | None:
        first: tuple[Ask, Ask] | None = None
        for ask in app.order:
            if ask.is_placeholder or not ask.role or ask.allocated:
                continue
            for held in sorted(app.placeholder_tasks(), key=lambda each: each.key):
                if held.released or held.leaving or held.role != ask.role:
                    continue
                if any(held.amounts.get(kind, 0) < amount for kind, amount in ask.amounts.items()):
                    held.released = True
                    self.releases.append(
                        Release("TIMEOUT", held, "cancel placeholder: resource incompatible")
                    )
                    continue
                first = first or (ask, held)
                node = self.nodes.get(held.place)
                if node is not None and self._accepts(ask, node, allocate=False):
                    return self._replace(ask, held, node)
        if first is None:
            return None
        ask, held = first
        for node in self.ordered_nodes():
            if node.schedulable and fits_on(node.available, ask.amounts) and self._accepts(ask, node):
                node.add(ask)
                return self._replace(ask, held, node)
        return None

    def _replace(self, ask: Ask, held: Ask, node: Node) -> Found:
        self._mark_allocated(ask)
        ask.swap, held.swap = held, ask
        held.released = True
        ask.place = node.name
        self.releases.append(Release("PLACEHOLDER_REPLACED", held, f"replacing allocationKey: {ask.key}"))
        return Found("Replaced", ask, node)

    # All other asks

    def _try_normal(self, leaf: Queue) -> Found | None:
        room = tree.room(leaf)
        attempts = [MAX_PREEMPTIONS]
        for group in tree.ordered_groups(leaf):
            assert isinstance(group, Application)
            if group.state == "Accepted" and not self._may_start(group):
                continue
            if group.skip_until is not None and self.now < group.skip_until:
                continue
            found = self._try_app(group, room, attempts)
            if found is not None:
                self._mark_starting(group)
                return found
        return None

    def _try_app(self, app: Application, room: Amounts | None, attempts: list[int]) -> Found | None:
        user_room, policy, unschedulable = self.limits.room(app), app.queue.policy, 0
        for ask in app.order:
            if policy.backoff_after and unschedulable >= policy.backoff_after:
                app.skip_until = self.now + policy.backoff_delay
                return None
            if ask.allocated or app.can_replace(ask):
                continue
            if not fits(user_room, ask.amounts):
                ask.log.add("Not enough user quota")
                continue
            ask.was_attempted = True
            if not fits(room, ask.amounts):
                if self.partition.preempts:
                    found = preempt(self, ask, attempts, nodes_tried=False)
                    if found is not None:
                        return found
                    ask.log.add("Preemption does not help")
                ask.log.add("Not enough queue quota")
                continue
            if ask.required_place:
                found = self._try_required_node(ask)
                if found is not None:
                    return found
                continue
            found = self._try_nodes(ask)
            if found is not None:
                return found
            if self.partition.preempts:
                found = preempt(self, ask, attempts, nodes_tried=True)
                if found is not None:
                    return found
                ask.log.add("Preemption does not help")
            unschedulable += 1
        return None

    def _try_required_node(self, ask: Ask) -> Found | None:
        node = self.nodes.get(ask.required_place)
        if node is None:
            return None
        for each in list(node.reservations.values()):
            if not each.required_place:
                self.unreserve(each.app, each)
        is_reserved = ask.key in ask.app.reservations
        if self._allocate(ask, node):
            return Found("AllocatedReserved" if is_reserved else "Allocated", ask, node)
        return None if is_reserved else Found("Reserved", ask, node)

    def _try_nodes(self, ask: Ask) -> Found | None:
        reserved = ask.app.reservations.get(ask.key)
        best: Node | None = None
        best_score = float("inf")
        for node in self.ordered_nodes():
            if not node.schedulable or not fits_on(node.total, ask.amounts):
                continue
            if self._allocate(ask, node):
                if reserved is not None:
                    return Found("AllocatedReserved", ask, node, reserved[0])
                return Found("Allocated", ask, node)
            if reserved is None and self.now - ask.created > RESERVATION_DELAY:
                score = node.fit_score(ask.amounts)
                if score < best_score:
                    best, best_score = node, score
        if best is not None and not best.reservations and self._accepts(ask, best, allocate=False):
            return Found("Reserved", ask, best)
        return None

    def _allocate(self, ask: Ask, node: Node) -> bool:
        """Allocates an ask on a node if it fits there and into its queue."""
        if node.is_reserved_by_others(ask) or not fits_on(node.available, ask.amounts):
            return False
        if not self._accepts(ask, node):
            return False
        queue = ask.group.queue
        if tree.blocking(queue, ask.amounts) is not None:
            return False
        root = self.partition.root
        if not fits_on(root.ceiling or {}, {k: v + root.used.get(k, 0) for k, v in ask.amounts.items()}):
            return False
        node.add(ask)
        tree.charge(queue, ask.amounts)
        self._mark_allocated(ask)
        ask.place = node.name
        self.add_to_app(ask, replaced=False)
        return True

    def _mark_allocated(self, ask: Ask) -> None:
        ask.allocated = True
        tree.remove_pending(ask.group, sum(ask.amounts.values()), ask.priority)

    def mark_pending_again(self, ask: Ask) -> None:
        if ask.allocated:
            ask.allocated = False
            tree.add_pending(ask.group, sum(ask.amounts.values()), ask.priority)

    def add_to_app(self, ask: Ask, *, replaced: bool) -> None:
        app = ask.app
        if ask.is_placeholder:
            self.limits.charge(app, ask.amounts)
            app.held = plus(app.held, ask.amounts)
            if is_zero(minus(app.held, app.placeholder_ask)):
                app.fire("run")
        else:
            if not replaced or app.used or app.state == "Completing":
                app.fire("run")
            self.limits.charge(app, ask.amounts)
            app.used = plus(app.used, ask.amounts)
        app.created = min(app.created, ask.created)
        app.tasks[ask.key] = ask

    # Ends

    def remove_allocation(self, ask: Ask, *, replaced: bool) -> None:
        """The application loses an allocation; use of queue and node is the caller's."""
        app = ask.app
        if app.tasks.pop(ask.key, None) is None:
            return
        event, ended = "", False
        if ask.is_placeholder:
            known = app.placeholders.get(ask.role)
            if known is not None:
                known.replaced += replaced
                known.timed_out += not replaced
            app.held = minus(app.held, ask.amounts)
            if not app.held and (app.state in ("Failing", "Resuming") or app.has_nothing):
                event, ended = "complete", True
        else:
            app.used = minus(app.used, ask.amounts)
            if app.has_nothing:
                event, ended = "complete", True
        self.limits.refund(app, ask.amounts, ended=ended)
        if event:
            app.fire(event)

    def remove_ask(self, app: Application, key: str) -> None:
        ask = app.asks.pop(key, None)
        if not app.asks and ask is None:
            return
        if ask is not None:
            self.unreserve(app, ask)
            if not ask.allocated:
                tree.remove_pending(app, sum(ask.amounts.values()), ask.priority)
            app.order = [each for each in app.order if each is not ask]
        self._complete_if_idle(app)

    def remove_all_asks(self, app: Application) -> None:
        if not app.asks:
            return
        for ask in list(app.asks.values()):
            self.unreserve(app, ask)
            if not ask.allocated:
                tree.remove_pending(app, sum(ask.amounts.values()), ask.priority)
        app.asks, app.order = {}, []
        self._complete_if_idle(app)

    def _complete_if_idle(self, app: Application) -> None:
        if (
            app.has_nothing
            and app.state not in ("Failing", "Completing")
            and not any(True for _ in app.placeholder_tasks())
        ):
            app.fire("complete")

    def quota_preemption(self) -> list[Release]:
        """Enforces lowered quotas, from the root down; a queue that does so ends the walk below it."""
        start = len(self.releases)
        if self.partition.enforces_quota:
            self._enforce(self.partition.root)
        return self.releases[start:]

    def _enforce(self, queue: Queue) -> None:
        if queue.is_managed and queue.path in self.quota_due:
            self.quota_due.discard(queue.path)
            if not covers_common(queue.ceiling, queue.used):
                for leaf, part in quota.distribute(queue, quota.excess(queue)):
                    message = f"preempting allocations to enforce new max quota for queue : {leaf.path}"
                    self.evict(quota.quota_victims(leaf, part, victims.Rule.UPSTREAM), message)
                return
        for child in queue.children.values():
            self._enforce(child)
