"""The kinds that a scheduler watches: their event handlers and informers.

A scheduler watches pods and nodes, the kinds of `api/kinds.py` that its release has, and the kinds that its
plugins declare.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from bayplan.api.devices import DeviceTaintRule, ResourceClaim
from bayplan.api.kinds import KINDS, Watch
from bayplan.api.meta import Object
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.api.releases import Release
from bayplan.client.informer import Handler, Informer
from bayplan.scheduler.claim_handler import ClaimHandler
from bayplan.scheduler.context import Context
from bayplan.scheduler.deferred import Deferrals, DeferredHandler
from bayplan.scheduler.handlers import NodeHandler, ObjectHandler, PodHandler
from bayplan.scheduler.taint_rule_handler import TaintRuleHandler

Handlers = dict[type[Object], Handler[Any]]


def make_handlers(
    context: Context,
    release: Release,
    scheduler_names: Collection[str],
    kinds: Iterable[type[Object]],
    claims: ClaimHandler,
    deferrals: Deferrals | None,
    changed: Callable[[], None],
) -> Handlers:
    """A handler for each watched kind, pods last.

    Args:
        kinds: further kinds, besides those of the release.
        deferrals: defers changes while a cycle waits for an extender; None without extenders.
        changed: called after each change of the queue.
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
        else:
            made[record] = ObjectHandler(context, "" if kind is None else kind.event, changed)
    made[Pod] = PodHandler(context, scheduler_names, changed)
    if deferrals is None:
        return made
    return {record: DeferredHandler(handler, deferrals) for record, handler in made.items()}


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
