"""The requests of a scheduling cycle to extenders, and the responses: plain values.

The cycle is a generator (`Steps`). With extenders it yields one of these requests and is resumed with the
response, which the caller gets from `ExtenderChain.answer`; without extenders it never yields. An extender's
error is text in the response, which the cycle handles like any other response.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

from bayplan.api.pod import Pod
from bayplan.framework.outcome import Eviction
from bayplan.framework.status import Status

EXTENDER: Final = "Extender"
"""Added to the rejecting plugins if extenders removed nodes: any event may then requeue the pod."""


@dataclass(frozen=True, slots=True)
class FilterRequest:
    """Which of these nodes may the pod go to? Sent after all Filter plugins."""

    pod: Pod
    node_names: Sequence[str]


@dataclass(frozen=True, slots=True)
class FilterResponse:
    """The remaining nodes, in the order of the last answer, and the statuses of others.

    With `error` the attempt fails, and nothing else is set. A node that was dropped without a reason has no
    status: it counts among those that were not evaluated. A status may also name a node that was not in the
    request: it then replaces the plugins' status of that node, as upstream.
    """

    node_names: tuple[str, ...] = ()
    statuses: dict[str, Status] = field(default_factory=dict)
    removed: bool = False
    """Whether fewer nodes are left: then `EXTENDER` is added to the rejecting plugins."""
    error: str = ""


@dataclass(frozen=True, slots=True)
class PrioritizeRequest:
    """How good are these nodes? Sent only with two or more of them."""

    pod: Pod
    node_names: Sequence[str]


@dataclass(frozen=True, slots=True)
class PrioritizeResponse:
    """The scores to add to each node's total, weights included.

    A node is in `scores` if any extender had an entry for it, even of 0: upstream breaks ties among such
    nodes at random.
    """

    scores: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PreemptRequest:
    """Which of these evictions are acceptable?"""

    pod: Pod
    candidates: Sequence[Eviction]


@dataclass(frozen=True, slots=True)
class PreemptResponse:
    """The remaining evictions, possibly with other victims. None left: no pod is evicted.

    With `error` preemption fails with that text, and no pod is evicted, either.
    """

    candidates: tuple[Eviction, ...] = ()
    error: str = ""


Request = FilterRequest | PrioritizeRequest | PreemptRequest
Response = FilterResponse | PrioritizeResponse | PreemptResponse

ResultT = TypeVar("ResultT")

Steps: TypeAlias = Generator[Request, Response, ResultT]
"""A part of a cycle that may call extenders."""


def run_through(steps: Steps[ResultT]) -> ResultT:
    """The result of steps without extenders."""
    try:
        request = next(steps)
    except StopIteration as end:
        result: ResultT = end.value
        return result
    raise RuntimeError(f"there are no extenders to answer {request!r}")
