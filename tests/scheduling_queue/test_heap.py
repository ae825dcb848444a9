"""PodHeap: pods in order, whatever is taken out meanwhile."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bayplan.scheduling_queue.queued import QueuedPod
from bayplan.scheduling_queue.sub_queues import PodHeap
from bayplan.testing.builders import make_pod

POD = make_pod()


def queued(sequence: int) -> QueuedPod:
    return QueuedPod(POD, str(sequence), 0.0, sequence)


def test_equal_ranks_leave_in_the_order_of_their_sequence() -> None:
    heap = PodHeap("active")
    for sequence in (2, 0, 1):
        heap.push(queued(sequence), "same")
    assert [info.sequence for info in heap] == [0, 1, 2]


def test_a_pod_that_was_taken_out_can_come_back_with_the_same_rank() -> None:
    heap, info = PodHeap("backoff"), queued(0)
    heap.push(info, 1)
    heap.remove(info)
    heap.push(info, 1)
    assert (heap.pop(), heap.pop()) == (info, None)


def test_an_entry_left_in_one_heap_does_not_count_when_the_pod_is_in_another() -> None:
    one, other, info = PodHeap("backoff"), PodHeap("active"), queued(0)
    one.push(info, 1)
    one.remove(info)
    other.push(info, 1)
    assert (one.first(), one.pop(), len(one)) == (None, None, 0)
    assert other.first() is info


def test_removed_pods_leave_no_entries_behind() -> None:
    heap = PodHeap("active")
    for sequence in range(10_000):
        info = queued(sequence)
        heap.push(info, -sequence if sequence % 2 else sequence)
        heap.remove(info)
    assert len(heap._run) + len(heap._heap) < 200


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("push"), st.integers(0, 5)),
            st.tuples(st.just("pop"), st.just(0)),
            st.tuples(st.just("remove"), st.integers(0, 30)),
        ),
        max_size=120,
    )
)
def test_it_is_a_sorted_list(steps: list[tuple[str, int]]) -> None:
    """Whatever is pushed, popped and taken out, the first pod is the one with the lowest rank."""
    heap = PodHeap("active")
    model: list[tuple[int, int, QueuedPod]] = []
    for sequence, (step, number) in enumerate(steps):
        if step == "push":
            info = queued(sequence)
            heap.push(info, number)
            model.append((number, sequence, info))
            model.sort(key=lambda entry: entry[:2])
        elif step == "pop":
            assert heap.pop() is (model.pop(0)[2] if model else None)
        elif model:
            heap.remove(model.pop(number % len(model))[2])
        assert heap.first() is (model[0][2] if model else None)
        assert list(heap) == [info for _, _, info in model]
        assert len(heap) == len(model)
