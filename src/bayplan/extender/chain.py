"""All extenders of a configuration: their order, their input, and which failures matter.

    filter      one after the other, each on the result of the one before; stops when no node is left
    prioritize  all at once; scores add up, failures are ignored
    preempt     one after the other, each on the answer of the one before
    bind        the first that binds and is interested in the pod

Ignorable extenders come last, and are skipped if they fail. Results depend on the answers alone; requests to
one extender are in `extender.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, overload

from bayplan.api.pod import Pod
from bayplan.config.model import Extender as ExtenderSettings
from bayplan.extender.client import ExtenderClient, ExtenderError
from bayplan.extender.extender import Extender, FilterResult
from bayplan.extender.wire import ClusterView, NodeJSON
from bayplan.framework.args import quoted
from bayplan.framework.outcome import Eviction
from bayplan.framework.status import Code, Status
from bayplan.runtime.search import (
    FilterRequest,
    FilterResponse,
    PreemptRequest,
    PreemptResponse,
    PrioritizeRequest,
    PrioritizeResponse,
    Request,
    Response,
)
from bayplan.state.cluster import Cluster

NO_VICTIM: Final = "expected at least one victim pod on node {node}"
SCALE: Final = 10
"""Extenders score up to 10 and plugins up to 100; neither limit is checked."""

_log: Final = logging.getLogger(__name__)


class ExtenderChain:
    """The extenders in the order in which they are called. Falsy if there are none."""

    def __init__(self, extenders: Iterable[Extender]) -> None:
        # Sorting is stable: file order within each half.
        self.extenders: Final = tuple(sorted(extenders, key=lambda extender: extender.ignorable))
        self.prioritizing = 0
        """Extenders with a prioritize request in progress."""

    def __bool__(self) -> bool:
        return bool(self.extenders)

    @property
    def filters_or_prioritizes(self) -> bool:
        """Whether any of them may prefer one of several nodes, so that finding a single node is not
        enough."""
        return any(extender.is_filter or extender.is_prioritizer for extender in self.extenders)

    @overload
    async def answer(self, request: FilterRequest) -> FilterResponse: ...
    @overload
    async def answer(self, request: PrioritizeRequest) -> PrioritizeResponse: ...
    @overload
    async def answer(self, request: PreemptRequest) -> PreemptResponse: ...
    async def answer(self, request: Request) -> Response:
        """The extenders' answer to a request of the cycle. Never raises for an extender's failure."""
        match request:
            case FilterRequest():
                return await self._filter(request)
            case PrioritizeRequest():
                return await self._prioritize(request)
            case PreemptRequest():
                return await self._preempt(request)

    async def bind(self, pod: Pod, node_name: str) -> bool:
        """Whether an extender bound the pod; False if that is left to the Bind plugins.

        Raises:
            ExtenderError: the responsible extender failed and is not ignorable.
        """
        for extender in self.extenders:
            if not (extender.is_binder and extender.is_interested(pod)):
                continue
            try:
                await extender.bind(pod, node_name)
            except ExtenderError as error:
                if not extender.ignorable:
                    raise
                _skipping(extender, pod, error)
            else:
                return True
        return False

    async def close(self) -> None:
        for extender in self.extenders:
            await extender.close()

    async def _filter(self, request: FilterRequest) -> FilterResponse:
        names: Sequence[str] = request.node_names
        statuses: dict[str, Status] = {}
        for extender in self.extenders:
            if not names:
                break
            if not extender.is_interested(request.pod):
                continue
            try:
                answer = await extender.filter(request.pod, names)
            except ExtenderError as error:
                if not extender.ignorable:
                    return FilterResponse(error=str(error))
                _skipping(extender, request.pod, error)
                continue
            statuses.update(statuses_of(answer))
            names = answer.feasible
        return FilterResponse(tuple(names), statuses, removed=len(names) != len(request.node_names))

    async def _prioritize(self, request: PrioritizeRequest) -> PrioritizeResponse:
        interested = [extender for extender in self.extenders if extender.is_interested(request.pod)]
        responses = await asyncio.gather(*(self._scores(extender, request) for extender in interested))
        totals: dict[str, int] = {}
        requested = set(request.node_names)
        for extender, scores in zip(interested, responses, strict=True):
            for name in requested.intersection(scores):
                totals[name] = totals.get(name, 0) + weighted(scores[name], extender)
        return PrioritizeResponse({name: _int64(total) for name, total in totals.items()})

    async def _scores(self, extender: Extender, request: PrioritizeRequest) -> Mapping[str, int]:
        self.prioritizing += 1
        try:
            return await extender.prioritize(request.pod, request.node_names)
        except ExtenderError as error:
            _log.warning("pod %s: no scores from extender %s: %s", request.pod.key, extender.url, error)
            return {}
        finally:
            self.prioritizing -= 1

    async def _preempt(self, request: PreemptRequest) -> PreemptResponse:
        candidates = tuple(request.candidates)
        for extender in self.extenders:
            if not candidates:
                break
            if not (extender.supports_preemption and extender.is_interested(request.pod)):
                continue
            try:
                answer = await extender.process_preemption(request.pod, candidates)
                candidates = with_victims(answer, extender)
            except ExtenderError as error:
                if not extender.ignorable:
                    return PreemptResponse(error=str(error))
                _skipping(extender, request.pod, error)
        return PreemptResponse(candidates)


def build_chain(configured: Iterable[ExtenderSettings], cluster: Cluster) -> ExtenderChain:
    """The extenders of a configuration. Connections are opened as needed; close the chain at the end.

    Raises:
        ConfigError: certificates of one cannot be used.
    """
    view = ClusterView(cluster)
    node_json = NodeJSON(view)
    return ExtenderChain(
        Extender(settings, ExtenderClient(settings), view, node_json) for settings in configured
    )


def statuses_of(answer: FilterResult) -> dict[str, Status]:
    """The statuses of the nodes that an answer rejects; "unresolvable" wins."""
    statuses = {name: Status(Code.UNSCHEDULABLE, (text,)) for name, text in answer.failed.items()}
    for name, text in answer.failed_and_unresolvable.items():
        statuses[name] = Status(Code.UNRESOLVABLE, (text,))
    return statuses


def weighted(score: int, extender: Extender) -> int:
    """A score's contribution to a node's total. An extender that does not prioritize has no weight."""
    return score * extender.weight * SCALE if extender.is_prioritizer else 0


def with_victims(answer: Sequence[Eviction], extender: Extender) -> tuple[Eviction, ...]:
    """The evictions of an answer that have victims; one without victims is an error unless it may be ignored.

    Raises:
        ExtenderError: a node has no victims, and the extender is not ignorable.
    """
    for eviction in answer:
        if not eviction.victims:
            if not extender.ignorable:
                raise ExtenderError(extender.url, NO_VICTIM.format(node=quoted(eviction.node_name)))
            _log.warning("extender %s names no victims on node %s", extender.url, eviction.node_name)
    return tuple(eviction for eviction in answer if eviction.victims)


def _int64(number: int) -> int:
    """Upstream adds 64-bit integers, which overflow by wrapping around."""
    return (number + 2**63) % 2**64 - 2**63


def _skipping(extender: Extender, pod: Pod, error: ExtenderError) -> None:
    _log.warning("pod %s: skipping extender %s, which is ignorable: %s", pod.key, extender.url, error)
