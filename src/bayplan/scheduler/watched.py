"""Which kinds a scheduler watches, and who handles their events: the handlers and informers of all of them.

The handlers are in `handlers.py`; those of the pod groups of other schedulers in `group_dialects.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from bayplan.api.devices import DeviceTaintRule, ResourceClaim
from bayplan.api.groups import CompositePodGroup, PodGroup
from bayplan.api.kinds import KINDS, Watch
from bayplan.api.meta import Object
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.api.releases import Release
from bayplan.client.informer import Handler, Informer
from bayplan.config.model import PodGroupDialect
from bayplan.scheduler.context import Context
from bayplan.scheduler.deferrals import Deferrals, DeferredHandler
from bayplan.scheduler.group_dialects import DIALECTS, Dialect, ForeignGroups, Members
from bayplan.scheduler.handlers import (
    ClaimHandler,
    GroupHandler,
    NodeHandler,
    ObjectHandler,
    PodHandler,
    TaintRuleHandler,
)

Handlers = dict[type[Object], Handler[Any]]


def make_handlers(
    context: Context,
    release: Release,
    scheduler_names: Collection[str],
    kinds: Iterable[type[Object]],
    claims: ClaimHandler,
    deferrals: Deferrals | None,
    changed: Callable[[], None],
    dialects: Sequence[PodGroupDialect] = (PodGroupDialect.KUBERNETES,),
    *,
    task_groups: bool = False,
) -> Handlers:
    """A handler for each watched kind, pods last.

    Args:
        kinds: further kinds, besides those of the release.
        deferrals: defers changes while a cycle waits for an extender; None without extenders.
        changed: called after each change of the queue.
        dialects: whose pod groups are read, with the feature gate of pod groups.
        task_groups: whether YuniKorn's task groups are read as such, too.
    """
    made: Handlers = {Node: NodeHandler(context, changed)}
    gates = ("", *release.gates)
    watched = (
        kind.record for kind in KINDS.watched() if kind.gate in gates and kind.record not in (Pod, Node)
    )
    for record in dict.fromkeys((*watched, *kinds)):
        kind = KINDS.find(record)
        if record is ResourceClaim:
            made[record] = claims
        elif record is DeviceTaintRule:
            made[record] = TaintRuleHandler(context, changed)
        elif record in (PodGroup, CompositePodGroup) and kind is not None:
            made[record] = GroupHandler(context, kind.event, changed)
        else:
            made[record] = ObjectHandler(context, "" if kind is None else kind.event, changed)
    made[Pod] = PodHandler(context, scheduler_names, changed)
    foreign = [DIALECTS[dialect] for dialect in dialects if dialect in DIALECTS]
    if (foreign or task_groups) and context.cluster.groups is not None:
        reads_own = PodGroupDialect.KUBERNETES in dialects
        _add_dialects(made, context, foreign, changed, reads_own=reads_own, task_groups=task_groups)
    if deferrals is None:
        return made
    return {record: DeferredHandler(handler, deferrals) for record, handler in made.items()}


def _add_dialects(
    made: Handlers,
    context: Context,
    dialects: Sequence[Dialect],
    changed: Callable[[], None],
    *,
    reads_own: bool,
    task_groups: bool,
) -> None:
    """Handlers of the groups of other schedulers; pods come after them."""
    pods = made.pop(Pod)
    if not reads_own:
        del made[PodGroup]
    of_groups = GroupHandler(context, KINDS.of(PodGroup).event, changed)
    for dialect in dialects:
        for record in dialect.more:
            made.setdefault(record, ObjectHandler(context, "", changed))
        groups = ForeignGroups(dialect, of_groups, context)
        assert dialect.record is not None
        made[dialect.record] = groups
        context.dialects.append(groups)
    if task_groups:
        # Imported here: few configurations have capacity queues.
        from bayplan.scheduler.task_groups import TaskGroups

        context.dialects.append(TaskGroups(of_groups, context))
    made[Pod] = Members(pods, context.dialects)


def make_informers(context: Context, handlers: Handlers) -> dict[type[Object], Informer[Any]]:
    """An informer for each handler."""
    made: dict[type[Object], Informer[Any]] = {}
    for record, handler in handlers.items():
        kind = KINDS.find(record)
        # Scheduling waits for the kinds that every API server has; a plugin's kind may not be installed.
        optional = kind is None or kind.watch is not Watch.REQUIRED
        informer = made[record] = Informer(context.api, record, handler, rng=context.rng, optional=optional)
        if kind is not None and context.metrics.enabled:
            informer.observe = context.metrics.declare_informer(
                kind.group, kind.version, kind.name, informer.version
            )
    return made
