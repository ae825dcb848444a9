"""Recorded cycles of descheduler come out the same through the eviction API of the embedded server."""

from __future__ import annotations

import asyncio

import pytest

from conformance.reference.served_descheduler import all_vectors, compare

SAMPLE = 13


def test_a_sample_of_the_recordings() -> None:
    vectors = [vector for i, vector in enumerate(all_vectors()) if i % SAMPLE == 0]
    wrong, counts = asyncio.run(compare(vectors))
    assert not wrong
    assert counts[""] > 20


@pytest.mark.long
def test_all_recordings_whose_answers_an_api_server_can_give() -> None:
    wrong, counts = asyncio.run(compare(all_vectors()))
    assert not wrong
    assert (counts[""], counts.total()) == (492, 812)
