"""What `bayplan.garbage` holds back it gives free again."""

from __future__ import annotations

import gc
import subprocess
import sys

from bayplan.garbage import NEW_OBJECTS, no_garbage_collection, old_objects_left_out

ALONE = """
import gc
from bayplan.garbage import old_objects_left_out
before = gc.get_threshold()
with old_objects_left_out():
    print(gc.get_freeze_count() > 0)
    with old_objects_left_out():
        pass
    print(gc.get_freeze_count() > 0, gc.get_threshold()[0])
print(gc.get_freeze_count(), gc.get_threshold() == before)
"""


def test_old_objects_are_left_out_until_the_outer_block_ends() -> None:
    ended = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["True", "True", str(NEW_OBJECTS), "0", "True"]


def test_objects_that_are_left_out_for_good_stay_so() -> None:
    """The tests themselves leave out what was imported and collected."""
    before = gc.get_freeze_count()
    with old_objects_left_out():
        pass
    assert gc.get_freeze_count() == before > 0


def test_garbage_is_collected_again_after_the_block() -> None:
    with no_garbage_collection():
        assert not gc.isenabled()
    assert gc.isenabled()
