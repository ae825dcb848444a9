"""Regions are chosen as if all combinations were tried."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from bayplan.fleet.karmada.spread import Region, choose_regions
from tests.effort import examples


def by_search(regions: Sequence[Region], least: int, most: int, clusters: int) -> tuple[Region, ...]:
    """Karmada's search through all combinations."""
    ordered = sorted(regions, key=lambda one: (len(one.members), -one.weight, one.name))
    recorded: list[list[Region]] = []

    def search(chosen: list[Region], start: int) -> None:
        if least <= len(chosen) <= most and sum(len(one.members) for one in chosen) >= clusters:
            recorded.append(sorted(chosen, key=lambda one: (-one.weight, one.name)))
        elif len(chosen) < most:
            for place in range(start, len(ordered)):
                search([*chosen, ordered[place]], place + 1)

    search([], 0)
    if not recorded:
        return ()

    def rank(one: list[Region]) -> tuple[int, int]:
        return -sum(region.weight for region in one), -sum(len(region.members) for region in one)

    best, *others = sorted(recorded, key=rank)
    for other in others:
        if len(other) < len(best) and best[: len(other)] == other:
            best = other
    return tuple(best)


SIZES = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), min_size=1, max_size=7)


@settings(max_examples=examples(500))
@given(SIZES, st.integers(0, 4), st.integers(0, 6), st.integers(0, 9))
def test_the_best_combination_is_that_of_the_full_search(
    sizes: list[tuple[int, int]], least: int, most: int, clusters: int
) -> None:
    regions = [
        Region(f"r{place}", tuple(range(count)), weight) for place, (count, weight) in enumerate(sizes)
    ]
    assert choose_regions(regions, least, most, clusters) == by_search(regions, least, most, clusters)


def test_many_regions_take_no_time() -> None:
    """All combinations of 200 regions could not be tried."""
    regions = [Region(f"r{place:03}", (0, 1, 2), place % 7) for place in range(200)]
    chosen = choose_regions(regions, 20, 40, 100)
    assert 20 <= len(chosen) <= 40
