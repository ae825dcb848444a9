"""The size of the cache: a bounded number of rows, those of the last pods."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from bayplan.answers.explain.explanation import explain
from bayplan.plugin import Code, CycleState, Dependencies, NodeColumns, Plugin, Pod, Reject, unschedulable
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.runtime import signature_results as signatures
from bayplan.runtime.signature_results import SignatureResults
from bayplan.scheduler.core import SchedulingCore
from bayplan.testing.builders import make_node, make_pod

NODES = 10


def _core(most_shapes: int, monkeypatch: pytest.MonkeyPatch) -> SchedulingCore:
    monkeypatch.setattr(signatures, "MIN_SIGNATURES", 1)
    monkeypatch.setattr(signatures, "MAX_ROWS", most_shapes * NODES)
    core = SchedulingCore()
    for index in range(NODES):
        core.cluster.set_node(make_node(f"n{index}", cpu="64", memory="64Gi", pods=110))
    return core


def _pod(shape: int) -> Pod:
    return make_pod(f"p{shape}", requests={"cpu": f"{shape + 1}m"})


def _rows(core: SchedulingCore, pod: Pod) -> int:
    before = core.rows_computed
    core.decide(pod)
    return core.rows_computed - before


def test_a_shape_that_comes_again_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    core = _core(4, monkeypatch)
    assert [_rows(core, _pod(shape)) for shape in (0, 1, 2, 3, 0, 3)] == [NODES] * 4 + [0, 0]


def test_beyond_the_limit_the_least_recently_used_signatures_are_dropped_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core = _core(4, monkeypatch)
    for shape in (0, 1, 2, 3, 0, 1):
        core.decide(_pod(shape))
    core.decide(_pod(4))
    assert [_rows(core, _pod(shape)) for shape in (0, 1, 4)] == [0, 0, 0]
    assert _rows(core, _pod(2)) == NODES


def test_dropped_results_are_not_referenced_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[SignatureResults]] = []

    class Watched(SignatureResults):
        def __init__(self, *args: object) -> None:
            super().__init__(*args)  # type: ignore[arg-type]  # handed on as they are
            made.append(weakref.ref(self))

    monkeypatch.setattr(signatures, "SignatureResults", Watched)
    core = _core(4, monkeypatch)
    for shape in range(40):
        core.decide(_pod(shape))
    gc.collect()
    assert len(made) == 40
    assert sum(results() is not None for results in made) <= 4


# Functions of the pod


def size(pod: Pod) -> int:
    return int(pod.annotations.get("size", "0"))


class SizeLimit(Plugin):
    depends_on = Dependencies.of(size)

    def filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Iterator[Reject]:
        yield Reject(np.full(len(nodes), size(pod) > 5), unschedulable("too large"))


def _sized(number: int, annotation: str, **fields: Any) -> Pod:
    return make_pod(f"p{number}", annotations={"size": annotation, "number": str(number)}, **fields)


def test_pods_with_equal_values_of_a_function_share_results() -> None:
    """Whatever else differs in their annotations; the other plugins are not computed again either."""
    core = SchedulingCore(plugins=[*BUILTIN_PLUGINS, SizeLimit])
    core.load([make_node(f"n{index}") for index in range(NODES)])
    rows = [_rows(core, _sized(number, text)) for number, text in enumerate(("3", "3", "4", "9", "3", "4"))]
    assert rows == [NODES, 0, NODES, NODES, 0, 0]
    assert core.decide(_sized(7, "6")).message.startswith(
        f"0/{NODES} nodes are available: {NODES} too large."
    )
    assert core.decide(_sized(8, "5")).fits


def test_templates_differ_in_the_rest() -> None:
    core = SchedulingCore(plugins=[*BUILTIN_PLUGINS, SizeLimit])
    core.load([make_node("n", cpu="1")])
    assert core.decide(_sized(0, "3", cpu="1")).fits
    assert not core.decide(_sized(1, "3", cpu="2")).fits
    assert core.decide(_sized(2, "3", cpu="1")).fits
    assert not core.decide(_sized(3, "6", cpu="1")).fits


class Opaque:
    pass


@pytest.mark.parametrize(
    ("function", "message"),
    [
        pytest.param(size, "invalid literal for int() with base 10: 'large'", id="it raises"),
        pytest.param(
            lambda pod: Opaque(),
            "the function <lambda> in depends_on returned Opaque, which cannot be compared; return numbers, "
            "strings, tuples, dataclasses or msgspec structs",
            id="it returns what cannot be compared",
        ),
    ],
)
def test_a_function_that_fails(function: Callable[[Pod], object], message: str) -> None:
    class Failing(SizeLimit):
        depends_on = Dependencies.of(function)

    core = SchedulingCore(plugins=[*BUILTIN_PLUGINS, Failing])
    core.load([make_node("n")])
    decision = core.decide(_sized(0, "large"))
    assert decision.status.code is Code.ERROR
    assert decision.status.plugin == "Failing"
    assert message in decision.message
    assert message in explain(core.frameworks["default-scheduler"], _sized(0, "large")).error
