"""The largest key is found without comparing all of them again."""

from __future__ import annotations

import random

import numpy as np
import pytest

from bayplan.runtime.feasible import Maximum


@pytest.mark.parametrize("count", [1, 3, 4, 5, 40, 41])
def test_it_is_the_first_largest_key_after_every_change(count: int) -> None:
    rng = random.Random(count)
    keys = np.array([rng.randrange(-9, 9) for _ in range(count)], dtype=np.int64)
    maximum = Maximum(keys, size=4)
    assert maximum.position() == keys.argmax()
    for _ in range(200):
        position = rng.randrange(count)
        keys[position] = rng.randrange(-9, 9)
        maximum.changed(position)
        assert maximum.position() == keys.argmax()
