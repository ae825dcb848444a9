"""How much is kept: a bounded number of rows, those of the pods that were asked about last."""

from __future__ import annotations

import gc
import weakref

import pytest

from bayplan.api.pod import Pod
from bayplan.runtime import signature_cache
from bayplan.runtime.signature_results import SignatureResults
from bayplan.scheduler.core import SchedulingCore
from bayplan.testing.builders import make_node, make_pod

NODES = 10


def _core(most_shapes: int, monkeypatch: pytest.MonkeyPatch) -> SchedulingCore:
    monkeypatch.setattr(signature_cache, "MIN_SIGNATURES", 1)
    monkeypatch.setattr(signature_cache, "MAX_ROWS", most_shapes * NODES)
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


def test_beyond_the_room_the_shapes_not_seen_for_longest_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    core = _core(4, monkeypatch)
    for shape in (0, 1, 2, 3, 0, 1):
        core.decide(_pod(shape))
    core.decide(_pod(4))
    assert [_rows(core, _pod(shape)) for shape in (0, 1, 4)] == [0, 0, 0]
    assert _rows(core, _pod(2)) == NODES


def test_what_is_not_kept_is_not_held_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[SignatureResults]] = []

    class Watched(SignatureResults):
        def __init__(self, *args: object) -> None:
            super().__init__(*args)  # type: ignore[arg-type]  # handed on as they are
            made.append(weakref.ref(self))

    monkeypatch.setattr(signature_cache, "SignatureResults", Watched)
    core = _core(4, monkeypatch)
    for shape in range(40):
        core.decide(_pod(shape))
    gc.collect()
    assert len(made) == 40
    assert sum(results() is not None for results in made) <= 4
