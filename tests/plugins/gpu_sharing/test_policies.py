"""The policies and the fragmentation, on the worked examples of the experiment's description."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayplan.plugins.library.gpu_sharing import policies
from bayplan.plugins.library.gpu_sharing.policies import Category, Fragmentation, TypicalPod
from bayplan.plugins.library.gpu_sharing.request import GpuRequest

EXAMPLE = Fragmentation(
    [
        TypicalPod(4000, 500, 1, (), 0.4),
        TypicalPod(6000, 1000, 1, (), 0.2),
        TypicalPod(10000, 200, 1, (), 0.1),
        TypicalPod(2000, 0, 0, (), 0.1),
        TypicalPod(12000, 1000, 2, (), 0.1),
        TypicalPod(1000, 100, 1, ("T4",), 0.1),
    ]
)
OPENB = """
3152/810:1047 11300/1000:874 11400/1000:599 3152/1000:470 11908/470:388 12500/0:366 8000/470:360
12000/1000:326 32000/0:290 18708/1000:255 11908/650:237 4000/320:232 9810/1000:195 8000/0:185
8000/1000:164 4000/1000:159 15700/1000:158 11908/1000:153 16000/1000:150 4000/230:122 15400/0:120
6000/460:120 16500/0:95 14200/1000:93 24200/1000:84 3152/590:75 8000/320:72 4152/550:72 11900/1000:55
4000/160:54 4152/370:45 4000/220:43 8200/1000:41 15200/1000:36 4152/810:31
"""
"""The typical pods of the trace: cpu/milli:number."""


def openb() -> Fragmentation:
    groups = [tuple(map(int, text.replace("/", ":").split(":"))) for text in OPENB.split()]
    total = sum(number for _, _, number in groups)
    return Fragmentation([TypicalPod(cpu, gpu, int(gpu > 0), (), n / total) for cpu, gpu, n in groups])


def states(*free: list[int]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.array([line + [0] * (8 - len(line)) for line in free], dtype=np.int64)


def cpus(*cpu: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.array(cpu, dtype=np.int64)


def test_fragmentation_by_category() -> None:
    access = EXAMPLE.access(["P100"])
    found = EXAMPLE.categories(cpus(8000), states([700, 300]), access)
    assert {category.value: round(float(amount[0]), 9) for category, amount in found.items()} == {
        "q1_lack_both": 100,
        "q2_lack_gpu": 320,
        "q3_satisfied": 280,
        "q4_lack_cpu": 100,
        "xl_satisfied": 100,
        "xr_lack_cpu": 0,
        "no_access": 100,
    }
    assert EXAMPLE.of(cpus(8000), states([700, 300]), access) == pytest.approx(720)


def test_fgd_takes_the_device_where_fragmentation_falls_most() -> None:
    access = EXAMPLE.access(["P100"])
    request = GpuRequest(1, 300)
    scores, devices = policies.fgd(EXAMPLE, cpus(8000), states([700, 300]), access, 2000, request)
    assert (scores.tolist(), devices.tolist()) == ([57], [1])
    only_first = policies.fgd(EXAMPLE, cpus(8000), states([700, 200]), access, 2000, request)
    assert only_first[1].tolist() == [0]


def test_a_pod_without_gpus_that_changes_no_sum_scores_50() -> None:
    scores, devices = policies.fgd(
        EXAMPLE, cpus(8000), states([700, 300]), EXAMPLE.access(["P100"]), 4000, GpuRequest()
    )
    assert (scores.tolist(), devices.tolist()) == ([50], [policies.NO_DEVICE])


@pytest.mark.parametrize(
    ("gpus", "cpu", "expected"),
    [
        (1, 128000, 135.9773),
        (2, 104000, 271.9547),
        (2, 64000, 271.9547),
        (2, 16000, 359.2583),
        (1, 8000, 605.2022),
        (2, 8000, 1210.4043),
        (4, 96000, 543.9093),
        (8, 96000, 1087.8187),
    ],
)
def test_fragmentation_of_idle_nodes(gpus: int, cpu: int, expected: float) -> None:
    assert openb().of(cpus(cpu), states([1000] * gpus))[0] == pytest.approx(expected, abs=5e-5)


FREE = states([1000, 1000, 600, 0, 0, 0, 0, 0], [1000, 1000])
CPU = cpus(60000, 104000)
KINDS = np.array([[1, 5, 0, 0, 0, 0, 0, 0, 0], [0] * 9], dtype=np.int64)


@pytest.mark.parametrize(
    ("cpu", "request_", "dot_product", "clustering", "packing", "best_fit", "fgd"),
    [
        (8000, GpuRequest(1, 400), [97, 96], [66, 43], [94, 31], [65, 52], [56, 41]),
        (12000, GpuRequest(1, 1000), [95, 94], [66, 43], [49, 31], [71, 57], [53, 53]),
        (8000, GpuRequest(), [98, 97], [0, 0], [0, 0], [63, 50], [50, 50]),
    ],
    ids=["share", "whole", "cpu only"],
)
def test_scores(
    cpu: int,
    request_: GpuRequest,
    dot_product: list[int],
    clustering: list[int],
    packing: list[int],
    best_fit: list[int],
    fgd: list[int],
) -> None:
    assert policies.dot_product(CPU, FREE, cpu, request_).tolist() == dot_product
    assert policies.clustering(FREE, KINDS, request_).tolist() == clustering
    assert policies.packing(FREE, cpus(8, 2), request_).tolist() == packing
    assert policies.best_fit(CPU, FREE, cpu, request_).tolist() == best_fit
    found, devices = policies.fgd(openb(), CPU, FREE, None, cpu, request_)
    assert found.tolist() == fgd
    assert devices[0] == (2 if request_.is_share else policies.NO_DEVICE)


@pytest.mark.parametrize(
    ("kinds", "base"),
    [([2, 0, 0], 75), ([1, 0, 3], 50), ([0, 0, 0], 25), ([0, 1, 0], 0)],
)
def test_clustering_prefers_pods_of_the_same_kind(kinds: list[int], base: int) -> None:
    found = policies.clustering(states([0, 0]), np.array([kinds], dtype=np.int64), GpuRequest(1, 500))
    assert found.tolist() == [base + 25]


def test_packing_of_idle_nodes_begins_with_small_ones() -> None:
    idle = states([1000], [1000] * 2, [1000] * 4, [1000] * 8)
    assert policies.packing(idle, cpus(1, 2, 4, 8), GpuRequest(1, 500)).tolist() == [32, 31, 29, 25]


def test_packing_takes_a_free_device_only_if_no_used_one_has_enough() -> None:
    free = states([300, 1000], [500, 1000])
    assert policies.packing(free, cpus(2, 2), GpuRequest(1, 400)).tolist() == [49, 95]
    assert policies.packing(free, cpus(2, 2), GpuRequest(1, 1000)).tolist() == [49, 49]


def test_best_fit_is_normalized_over_the_whole_range() -> None:
    assert policies.spread_out(cpus(40, 60, 50)).tolist() == [0, 100, 50]
    assert policies.spread_out(cpus(40, 40)).tolist() == [0, 0]


def test_nodes_larger_than_the_published_ones_stay_in_range() -> None:
    cpu, free = cpus(900_000, 900_000), np.full((2, 16), 1000, dtype=np.int64)
    for scores in (
        policies.dot_product(cpu, free, 400_000, GpuRequest(8, 1000)),
        policies.best_fit(cpu, free, 1000, GpuRequest(1, 500)),
        policies.clustering(free, np.zeros((2, 17), dtype=np.int64), GpuRequest(1, 500)),
        policies.packing(free, cpus(16, 16), GpuRequest(1, 500)),
    ):
        assert scores.min() >= 0
        assert scores.max() <= 100


def test_devices_by_best_fit() -> None:
    free = cpus(1000, 400, 700, 400)
    assert policies.best_fit_devices(free, GpuRequest(1, 300)) == (1,)
    assert policies.best_fit_devices(free, GpuRequest(1, 600)) == (2,)
    assert policies.best_fit_devices(free, GpuRequest(2, 1000)) == ()
    assert policies.best_fit_devices(cpus(0, 1000, 1000, 1000), GpuRequest(2, 1000)) == (1, 2)


amounts = st.lists(st.sampled_from([0, 160, 230, 470, 530, 810, 1000]), min_size=1, max_size=8)
some_states = st.lists(st.tuples(st.integers(0, 40), amounts), min_size=1, max_size=6)


@given(some_states)
def test_fragmentation_is_the_sum_of_all_categories_but_one(nodes: list[tuple[int, list[int]]]) -> None:
    fragmentation = openb()
    cpu, free = cpus(*(1000 * cpus for cpus, _ in nodes)), states(*(line for _, line in nodes))
    found = fragmentation.categories(cpu, free)
    assert sum(found.values()) == pytest.approx(free.sum(axis=1))
    useful = found.pop(Category.SATISFIED)
    assert fragmentation.of(cpu, free) == pytest.approx(free.sum(axis=1) - useful)


@given(some_states)
def test_a_state_has_the_same_bits_in_every_batch(nodes: list[tuple[int, list[int]]]) -> None:
    fragmentation = openb()
    cpu, free = cpus(*(1000 * cpus for cpus, _ in nodes)), states(*(line for _, line in nodes))
    together = fragmentation.of(cpu, free).tolist()
    assert together == [fragmentation.of(cpu[i : i + 1], free[i : i + 1])[0] for i in range(len(nodes))]


@given(some_states, st.sampled_from([(1, 230), (1, 470), (1, 1000), (2, 1000), (0, 0)]))
def test_fgd_is_the_definition(nodes: list[tuple[int, list[int]]], wanted: tuple[int, int]) -> None:
    """Device by device, without any of the shortcuts."""
    fragmentation, request = openb(), GpuRequest(*wanted)
    cpu, free = cpus(*(1000 * cpus for cpus, _ in nodes)), states(*(line for _, line in nodes))
    scores, devices = policies.fgd(fragmentation, cpu, free, None, 4000, request)
    for row in range(len(nodes)):
        if cpu[row] < 4000 or (free[row] >= request.milli).sum() < request.count:
            assert (scores[row], devices[row]) == (0, policies.NO_DEVICE)
            continue
        before = fragmentation.of(cpu[row : row + 1], free[row : row + 1])[0]
        best, best_device = -1, policies.NO_DEVICE
        if request.is_share:
            choices = [[device] for device in range(8) if free[row, device] >= request.milli]
        else:
            choices = [np.flatnonzero(free[row] >= 1000)[: request.count].tolist()]
        for choice in choices:
            after = free[row : row + 1].copy()
            after[0, choice] -= request.milli
            fall = before - fragmentation.of(cpu[row : row + 1] - 4000, after)[0]
            score = int(100 * (1 / (1 + np.exp(-fall / 1000))))
            if score > best:
                best, best_device = score, choice[0] if request.is_share else policies.NO_DEVICE
        assert (scores[row], devices[row]) == (best, best_device)
