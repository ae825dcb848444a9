"""Calling plugins: every call that may raise goes through here.

An exception in a plugin fails the attempt of that one pod and names the plugin; it never reaches the loop.
The texts are upstream's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayplan.api.pod import Pod
from bayplan.errors import BayplanError
from bayplan.framework.outcome import Reasons, Rejections, collect, is_rejected, rejects
from bayplan.framework.plugin_api import MAX_SCORE, NodeNames, Plugin
from bayplan.framework.points import Point
from bayplan.framework.state import CycleState
from bayplan.framework.status import (
    SUCCESS,
    Code,
    Status,
    WrongResultError,
    describe,
    traceback_of,
    wrong_result,
)
from bayplan.runtime.profile import Step
from bayplan.state.columns import RowMask
from bayplan.state.view import IntColumn, NodeColumns


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


_PRE_FILTER_RESULTS: Final = (
    'return None, SKIP, NodeNames(...), unschedulable("reason") or unresolvable("reason")'
)
_SCORES: Final = "return one integer for each row, for example np.rint(x).astype(np.int64)"
_PRE_FILTER_CODES: Final = (Code.SUCCESS, Code.SKIP, Code.UNSCHEDULABLE, Code.UNRESOLVABLE)


def pre_filter(step: Step, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | NodeNames:
    try:
        answer: object = step.pre_filter(state, pod, nodes)
    except Exception as error:
        raise _pre_filter_error(step.name, describe(error, step.plugin)) from error
    if answer is None:
        return SUCCESS
    if isinstance(answer, NodeNames):
        return answer
    if isinstance(answer, Status) and answer.code in _PRE_FILTER_CODES:
        return answer.by(step.name) if answer.is_rejection else answer
    if isinstance(answer, Status) and answer.message:
        raise _pre_filter_error(step.name, answer.message)
    wrong = wrong_result("pre_filter", answer, _PRE_FILTER_RESULTS)
    raise _pre_filter_error(step.name, describe(wrong, step.plugin))


def _pre_filter_error(plugin: str, text: str) -> AttemptError:
    return AttemptError(f'running PreFilter plugin "{plugin}": {text}', plugin, Point.PRE_FILTER)


def filter_one(step: Step, state: CycleState, pod: Pod, node: NodeColumns, reasons: Reasons) -> int:
    """The id of the reasons for which a plugin rejects a single row; 0 if it does not reject it."""
    reason_id = 0
    try:
        for reject in rejects(step.filter(state, pod, node)):
            if is_rejected(reject):
                reason_id = reasons.with_reason(reason_id, reject)
    except Exception as error:
        raise filter_error(step.name, describe(error, step.plugin)) from error
    return reason_id


def filter_rows(
    step: Step, state: CycleState, pod: Pod, nodes: NodeColumns, reasons: Reasons
) -> Rejections | None:
    """The rows that a plugin rejects; None if it rejects none."""
    try:
        return collect(rejects(step.filter(state, pod, nodes)), reasons, len(nodes))
    except Exception as error:
        raise filter_error(step.name, describe(error, step.plugin)) from error


def rejected_rows(step: Step, state: CycleState, pod: Pod, nodes: NodeColumns) -> RowMask | None:
    """The rows that the plugin's Filter rejects, if it has the shortcut for them."""
    try:
        found = None if step.rejected_rows is None else step.rejected_rows(state, pod, nodes)
        if found is not None and not isinstance(found, RowMask):
            raise wrong_result("rejected_rows", found, "return a RowMask, or None")
        return found
    except Exception as error:
        raise filter_error(step.name, describe(error, step.plugin)) from error


def row_filter(step: Step, state: CycleState, pod: Pod, nodes: NodeColumns) -> Callable[[int], bool] | None:
    """The plugin's shortcut for Filter on single rows."""
    try:
        found = None if step.row_filter is None else step.row_filter(state, pod, nodes)
        if found is not None and not callable(found):
            raise wrong_result("row_filter", found, "return a function of the row, or None")
        return found
    except Exception as error:
        raise filter_error(step.name, describe(error, step.plugin)) from error


def row_score(step: Step, state: CycleState, pod: Pod, nodes: NodeColumns) -> Callable[[int], int] | None:
    """The plugin's shortcut for Score on single rows."""
    try:
        found = None if step.row_score is None else step.row_score(state, pod, nodes)
        if found is not None and not callable(found):
            raise wrong_result("row_score", found, "return a function of the row, or None")
        return found
    except Exception as error:
        raise score_error(step.name, describe(error, step.plugin)) from error


def by_row(step: Step, point: Point, shortcut: Callable[[int], int], row: int) -> int:
    """The result of the plugin's shortcut for one row. The caller handles exceptions, once for many rows."""
    return shortcut(row)


def dependency_error(plugin: Plugin, error: Exception) -> AttemptError:
    """A function in the plugin's `depends_on` failed."""
    return AttemptError(f'running "{plugin.name}" plugin: {describe(error, plugin)}', plugin.name)


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
    except Exception as error:
        raise filter_error(step.name, describe(error, step.plugin)) from error


def filter_error(plugin: str, text: str) -> AttemptError:
    return AttemptError(f'running "{plugin}" filter plugin: {text}', plugin, Point.FILTER)


def pre_score(step: Step, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status:
    """Success, or SKIP if the plugin has nothing to score."""
    try:
        answer: object = step.pre_score(state, pod, nodes)
    except Exception as error:
        raise _pre_score_error(step.name, describe(error, step.plugin)) from error
    if answer is None:
        return SUCCESS
    if isinstance(answer, Status) and answer.code in (Code.SUCCESS, Code.SKIP):
        return answer
    if isinstance(answer, Status) and answer.message:
        raise _pre_score_error(step.name, answer.message)
    wrong = wrong_result("pre_score", answer, "return None, SKIP or SKIP_FOR_SIGNATURE")
    raise _pre_score_error(step.name, describe(wrong, step.plugin))


def _pre_score_error(plugin: str, text: str) -> AttemptError:
    return AttemptError(f'running PreScore plugin "{plugin}": {text}', plugin, Point.PRE_SCORE)


def score_rows(step: Step, state: CycleState, pod: Pod, nodes: NodeColumns) -> IntColumn:
    try:
        return _integers("score", step.score(state, pod, nodes), len(nodes))
    except Exception as error:
        raise score_error(step.name, describe(error, step.plugin)) from error


def _integers(method: str, answer: object, rows: int) -> IntColumn:
    """The scores that a plugin returned for these rows. A float is an error: it would be truncated."""
    scores = answer if isinstance(answer, np.ndarray) else np.asarray(answer)
    if scores.shape != (rows,):
        if not isinstance(answer, np.ndarray | list | tuple):
            raise wrong_result(method, answer, _SCORES)
        text = f"{method} returned an array of shape {scores.shape} for {rows} rows; {_SCORES}"
        raise WrongResultError(method, text)
    if scores.dtype.kind not in "iub":
        text = f"{method} returned an array of {scores.dtype}; {_SCORES}"
        raise WrongResultError(method, text)
    return scores.astype(np.int64, copy=False)


def _integer(score: object) -> int:
    """The score of one row."""
    if isinstance(score, int | np.integer):
        return int(score)
    if isinstance(score, np.ndarray) and score.size == 1 and score.dtype.kind in "iub":
        return int(score.reshape(())[()])
    raise wrong_result("score", score, _SCORES)


def score_one(step: Step, state: CycleState, pod: Pod, node: NodeColumns) -> int:
    """The score of a single row."""
    try:
        score: object = step.score(state, pod, node)
        return score if type(score) is int else _integer(score)
    except Exception as error:
        raise score_error(step.name, describe(error, step.plugin)) from error


def has_uniform_score(step: Step, state: CycleState, pod: Pod) -> bool:
    """Whether a plugin has the same score for all nodes, as far as it knows."""
    try:
        return step.uniform_score is not None and step.uniform_score(state, pod)
    except Exception as error:
        raise score_error(step.name, describe(error, step.plugin)) from error


def score_error(plugin: str, text: str) -> AttemptError:
    text = f'running Score plugins: plugin "{plugin}" failed with: {text}'
    return AttemptError(text, plugin, Point.SCORE)


def normalized(step: Step, state: CycleState, pod: Pod, nodes: NodeColumns, scores: IntColumn) -> IntColumn:
    """Scores between 0 and 100, normalized by the plugin if it does that."""
    if step.normalize is not None:
        scores = scores.view()
        scores.flags.writeable = False
        try:
            scores = _integers("normalize", step.normalize(state, pod, nodes, scores), len(nodes))
        except Exception as error:
            text = f'plugin "{step.name}" failed with: {describe(error, step.plugin)}'
            text = f"running Normalize on Score plugins: {text}"
            raise AttemptError(text, step.name, Point.SCORE) from error
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
    except Exception as error:
        raise score_error(step.name, describe(error, step.plugin)) from error
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
