"""Calls plugins in the search for a node: PreFilter, Filter, PreScore, Score.

They are called plugin by plugin, because cached plugins are called for some rows only. `observed.py` has the
same functions with timers, and `extension_points.py` runs all other points. No other module calls a plugin.

An exception in a plugin, SystemExit included (`plugin_exceptions`), fails the attempt of that one pod and
names the plugin; it never reaches the loop. So does a result of the wrong type. The texts are upstream's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from bayplan.api.pod import Pod
from bayplan.errors import BayplanError
from bayplan.framework.outcome import NodeStatuses, Reasons, Rejections, collect, is_rejected, rejects
from bayplan.framework.plugin_api import MAX_SCORE, NodeNames, Plugin
from bayplan.framework.points import Point
from bayplan.framework.state import CycleState
from bayplan.framework.status import (
    SUCCESS,
    Code,
    Status,
    WrongResultError,
    describe,
    plugin_exceptions,
    traceback_of,
    wrong_result,
)
from bayplan.runtime.profile import PointStep, Step
from bayplan.state.columns import IdColumn, RowMask
from bayplan.state.view import IntColumn, NodeColumns, NodeInfo

PRE_FLIGHT: Final = "PreBindPreFlight"
NORMALIZE: Final = "ScoreExtensionNormalize"

_PRE_FILTER_RESULTS: Final = (
    'return None, SKIP, NodeNames(...), unschedulable("reason") or unresolvable("reason")'
)
_SCORES: Final = "return one integer for each row, for example np.rint(x).astype(np.int64)"
_PRE_FILTER_CODES: Final = (Code.SUCCESS, Code.SKIP, Code.UNSCHEDULABLE, Code.UNRESOLVABLE)

_TEXTS: Final[dict[str, str]] = {
    Point.FILTER: 'running "{}" filter plugin: {}',
    Point.SCORE: 'running Score plugins: plugin "{}" failed with: {}',
    NORMALIZE: 'running Normalize on Score plugins: plugin "{}" failed with: {}',
    PRE_FLIGHT: f'running {PRE_FLIGHT} "{{}}": {{}}',
    "AddPod": 'running AddPod on PreFilter plugin "{}": {}',
    "RemovePod": 'running RemovePod on PreFilter plugin "{}": {}',
}
"""The texts of errors, where they differ from `running POINT plugin "NAME": PROBLEM`."""
_POINTS: Final[dict[str, str]] = {
    NORMALIZE: Point.SCORE,
    "AddPod": Point.FILTER,
    "RemovePod": Point.FILTER,
}


class AttemptError(BayplanError):
    """The attempt to schedule a pod failed. `plugin` is the plugin that caused it, and `point` where, if
    known."""

    def __init__(self, message: str, plugin: str = "", point: str = "") -> None:
        super().__init__(message)
        self.plugin = plugin
        self.point = point

    @property
    def traceback(self) -> str:
        """The traceback of the plugin's exception; empty if there is none."""
        return traceback_of(self.__cause__)

    @property
    def code(self) -> Code:
        """The result code of the point at which the attempt ended."""
        return Code.ERROR


def plugin_error(step: Step | PointStep[Any], point: str, problem: str | BaseException) -> AttemptError:
    """The attempt failed because of this plugin."""
    plugin = step.declared if isinstance(step, PointStep) else step.plugin
    text = describe(problem, plugin) if isinstance(problem, BaseException) else problem
    template = _TEXTS.get(point)
    if template is None:
        text = f'running {point} plugin "{step.name}": {text}'
    else:
        text = template.format(step.name, text)
    return AttemptError(text, step.name, _POINTS.get(point, point))


def dependency_error(plugin: Plugin, error: BaseException) -> AttemptError:
    """A function in the plugin's `depends_on` failed."""
    return AttemptError(f'running "{plugin.name}" plugin: {describe(error, plugin)}', plugin.name)


# PreFilter and Filter


def pre_filter(step: Step, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | NodeNames:
    try:
        answer: object = step.pre_filter(state, pod, nodes)
        if answer is None:
            return SUCCESS
        if isinstance(answer, NodeNames):
            return answer
        if isinstance(answer, Status):
            if answer.code in _PRE_FILTER_CODES:
                return answer.by(step.name) if answer.is_rejection else answer
            if answer.message:
                raise plugin_error(step, Point.PRE_FILTER, answer.message)
        raise wrong_result("pre_filter", answer, _PRE_FILTER_RESULTS)
    except AttemptError:
        raise
    except plugin_exceptions() as error:
        raise plugin_error(step, Point.PRE_FILTER, error) from error


def filter_one(step: Step, state: CycleState, pod: Pod, node: NodeColumns, reasons: Reasons) -> int:
    """The id of the reasons for which a plugin rejects a single row; 0 if it does not reject it."""
    reason_id = 0
    try:
        for reject in rejects(step.filter(state, pod, node)):
            if is_rejected(reject):
                reason_id = reasons.with_reason(reason_id, reject)
    except plugin_exceptions() as error:
        raise plugin_error(step, Point.FILTER, error) from error
    return reason_id


def filter_rows(
    step: Step, state: CycleState, pod: Pod, nodes: NodeColumns, reasons: Reasons
) -> Rejections | None:
    """The rows that a plugin rejects; None if it rejects none."""
    try:
        return collect(rejects(step.filter(state, pod, nodes)), reasons, len(nodes))
    except plugin_exceptions() as error:
        raise plugin_error(step, Point.FILTER, error) from error


def first_filter_error(node_statuses: NodeStatuses, evaluated: IdColumn) -> tuple[int, AttemptError] | None:
    """The first error of a filter, and how many nodes were evaluated before it.

    It ends the search there, as in kube-scheduler with parallelism 1. With more threads it evaluates
    a few more nodes.
    """
    for position, row in enumerate(evaluated):
        status = node_statuses.status(int(row))
        if status is not None and status.code is Code.ERROR:
            text = _TEXTS[Point.FILTER].format(status.plugin, status.message)
            return position, AttemptError(text, status.plugin, Point.FILTER)
    return None


def rejected_rows(step: Step, state: CycleState, pod: Pod, nodes: NodeColumns) -> RowMask | None:
    """The rows that the plugin's Filter rejects, if it has the shortcut for them."""
    try:
        found = None if step.rejected_rows is None else step.rejected_rows(state, pod, nodes)
        if found is not None and not isinstance(found, RowMask):
            raise wrong_result("rejected_rows", found, "return a RowMask, or None")
        return found
    except plugin_exceptions() as error:
        raise plugin_error(step, Point.FILTER, error) from error


def row_shortcut(
    step: Step, point: Point, state: CycleState, pod: Pod, nodes: NodeColumns
) -> Callable[[int], int] | None:
    """The plugin's shortcut for Filter or Score on single rows, if it has one."""
    make: Any = step.row_filter if point is Point.FILTER else step.row_score
    try:
        found = None if make is None else make(state, pod, nodes)
        if found is not None and not callable(found):
            name = "row_filter" if point is Point.FILTER else "row_score"
            raise wrong_result(name, found, "return a function of the row, or None")
        return found
    except plugin_exceptions() as error:
        raise plugin_error(step, point, error) from error


def shortcut(step: Step, point: Point, shortcut: Callable[[int], int]) -> Callable[[int], int]:
    """How that shortcut is called. The caller handles its exceptions, once for many rows."""
    return shortcut


def nodes_affected_by_pods(step: Step, state: CycleState, pod: Pod, nodes: NodeColumns) -> NDArray[np.bool_]:
    """The rows on which the plugin's Filter depends on pods: all, unless it declares them."""
    if step.affected is None:
        return np.ones(len(nodes), dtype=np.bool_)
    try:
        affected = np.asarray(step.affected(state, pod, nodes))
        if affected.shape != (len(nodes),) or affected.dtype != np.bool_:
            given = f"{affected.dtype} of shape {affected.shape} for {len(nodes)} rows"
            raise WrongResultError(
                "nodes_affected_by_pods", f"nodes_affected_by_pods returned {given}; return one bool per row"
            )
        return affected
    except plugin_exceptions() as error:
        raise plugin_error(step, Point.FILTER, error) from error


def adjust(step: Step, verb: str, state: CycleState, pod: Pod, others: Iterable[Pod], node: NodeInfo) -> None:
    """Runs the plugin's AddPod or RemovePod for pods that are hypothetically added or removed."""
    assert step.adjusts is not None
    method = step.adjusts.add_pod if verb == "AddPod" else step.adjusts.remove_pod
    for other in others:
        try:
            answer: object = method(state, pod, other, node)
            if answer is not None and not isinstance(answer, Status):
                raise wrong_result(method.__name__, answer, "return None or failure(text)")
        except plugin_exceptions() as error:
            raise plugin_error(step, verb, error) from error
        if answer is not None and not answer.is_success:
            raise plugin_error(step, verb, answer.message)


# PreScore and Score


def pre_score(step: Step, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status:
    """Success, or SKIP if the plugin has nothing to score."""
    try:
        answer: object = step.pre_score(state, pod, nodes)
        if answer is None:
            return SUCCESS
        if isinstance(answer, Status):
            if answer.code in (Code.SUCCESS, Code.SKIP):
                return answer
            if answer.message:
                raise plugin_error(step, Point.PRE_SCORE, answer.message)
        raise wrong_result("pre_score", answer, "return None, SKIP or SKIP_FOR_SIGNATURE")
    except AttemptError:
        raise
    except plugin_exceptions() as error:
        raise plugin_error(step, Point.PRE_SCORE, error) from error


def score_rows(step: Step, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
    try:
        return _integers("score", step.score(state, pod, nodes), len(nodes))
    except plugin_exceptions() as error:
        raise plugin_error(step, Point.SCORE, error) from error


def _integers(method: str, answer: object, rows: int) -> IntColumn:
    """The scores that a plugin returned for these rows. A float is an error: it would be truncated."""
    scores = answer if isinstance(answer, np.ndarray) else np.asarray(answer)
    if scores.shape != (rows,):
        if not isinstance(answer, np.ndarray | list | tuple):
            raise wrong_result(method, answer, _SCORES)
        text = f"{method} returned an array of shape {scores.shape} for {rows} rows; {_SCORES}"
        raise WrongResultError(method, text)
    if scores.dtype.kind not in "iub":
        raise WrongResultError(method, f"{method} returned an array of {scores.dtype}; {_SCORES}")
    return scores.astype(np.int64, copy=False)


def score_one(step: Step, state: CycleState, pod: Pod, node: NodeColumns) -> int:
    """The score of a single row."""
    try:
        score: object = step.score(state, pod, node)
        if isinstance(score, int | np.integer):
            return int(score)
        if isinstance(score, np.ndarray) and score.size == 1 and score.dtype.kind in "iub":
            return int(score.reshape(())[()])
        raise wrong_result("score", score, _SCORES)
    except plugin_exceptions() as error:
        raise plugin_error(step, Point.SCORE, error) from error


def has_uniform_score(step: Step, state: CycleState, pod: Pod) -> bool:
    """Whether a plugin has the same score for all nodes, as far as it knows."""
    try:
        return step.uniform_score is not None and step.uniform_score(state, pod)
    except plugin_exceptions() as error:
        raise plugin_error(step, Point.SCORE, error) from error


def normalized(step: Step, state: CycleState, pod: Pod, nodes: NodeColumns, scores: IntColumn) -> IntColumn:
    """Scores between 0 and 100, normalized by the plugin if it does that."""
    if step.normalize is not None:
        scores = scores.view()
        scores.flags.writeable = False
        try:
            scores = _integers("normalize", step.normalize(state, pod, nodes, scores), len(nodes))
        except plugin_exceptions() as error:
            raise plugin_error(step, NORMALIZE, error) from error
    check_range(step, scores)
    return scores


class DomainScores(NamedTuple):
    """Normalised scores by the values of a label."""

    topology_key: str
    table: IntColumn
    differ: bool
    """Whether the rows have different scores."""


def scores_by_domain(step: Step, state: CycleState, pod: Pod, nodes: NodeColumns) -> DomainScores | None:
    """The scores of a plugin that scores domains instead of rows; None if this one does not."""
    try:
        found = None if step.domain_scores is None else step.domain_scores(state, pod, nodes)
        if found is None:
            return None
        if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[1], np.ndarray):
            raise wrong_result("scores_by_domain", found, "return (label key, array of integers), or None")
        key, table = found
        if table.dtype.kind not in "iub":
            raise wrong_result("scores_by_domain", table.dtype, "the array must have integers")
        present = nodes.domains(key)
        scores = table.take(nodes.label(key).ids if present is None else present)
    except plugin_exceptions() as error:
        raise plugin_error(step, Point.SCORE, error) from error
    seen = scores.tolist()
    lowest, highest = min(seen, default=0), max(seen, default=0)
    if lowest < 0 or highest > MAX_SCORE:
        check_range(step, scores)
    return DomainScores(key, table, lowest != highest)


def check_range(step: Step, scores: IntColumn) -> None:
    # As unsigned integers negative scores are very large: one comparison for both ends.
    if len(scores) and scores.view(np.uint64).max() > MAX_SCORE:
        wrong = scores[(scores < 0) | (scores > MAX_SCORE)][0]
        raise AttemptError(
            f'applying score defaultWeights on Score plugins: plugin "{step.name}" returns an invalid score '
            f"{wrong}, it should in the range of [0, {MAX_SCORE}] after normalizing",
            step.name,
            Point.SCORE,
        )


# How they are called


class Calls(Protocol):
    """The functions of this module that `observed.py` has with timers."""

    def pre_filter(
        self, step: Step, state: CycleState, pod: Pod, nodes: NodeColumns
    ) -> Status | NodeNames: ...

    def filter_one(
        self, step: Step, state: CycleState, pod: Pod, node: NodeColumns, reasons: Reasons
    ) -> int: ...

    def filter_rows(
        self, step: Step, state: CycleState, pod: Pod, nodes: NodeColumns, reasons: Reasons
    ) -> Rejections | None: ...

    def shortcut(self, step: Step, point: Point, shortcut: Callable[[int], int]) -> Callable[[int], int]: ...

    def adjust(
        self, step: Step, verb: str, state: CycleState, pod: Pod, others: Iterable[Pod], node: NodeInfo
    ) -> None: ...

    def pre_score(self, step: Step, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status: ...

    def score_rows(self, step: Step, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn: ...

    def score_one(self, step: Step, state: CycleState, pod: Pod, node: NodeColumns) -> int: ...

    def normalized(
        self, step: Step, state: CycleState, pod: Pod, nodes: NodeColumns, scores: IntColumn
    ) -> IntColumn: ...

    def scores_by_domain(
        self, step: Step, state: CycleState, pod: Pod, nodes: NodeColumns
    ) -> DomainScores | None: ...


PLAIN: Final[Calls] = cast(Calls, sys.modules[__name__])
"""The functions of this module."""


class Caller:
    """Calls the plugins of one framework; shared by all parts of the runtime."""

    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls = PLAIN
