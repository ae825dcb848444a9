"""Comparing on a real Dask cluster: a scheduler and two worker processes on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from bayplan.answers.whatif.comparison import Workload, compare
from bayplan.errors import InputError
from tests.answers.whatif.test_comparison import objects, variants

NEEDS = "needs the package distributed: pip install 'bayplan[dask]'"
distributed: Any = pytest.importorskip("distributed", reason=NEEDS)
dask: Any = pytest.importorskip("dask", reason=NEEDS)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
    ) as cluster:
        yield cluster.scheduler_address


def test_workers_give_the_same_as_one_process(address: str) -> None:
    workload = Workload(objects(), shuffle=True)
    found = compare(workload, variants(), seeds=3, dask=address)
    assert found == compare(workload, variants(), seeds=3, jobs=1)


@pytest.mark.parametrize("wrong", ["nonsense", "tcp://127.0.0.1:1"])
def test_an_address_without_a_scheduler_is_an_error(wrong: str) -> None:
    soon = dask.config.set({"distributed.comm.timeouts.connect": "1s"})
    with soon, pytest.raises(InputError, match=f"--dask {wrong}: "):
        compare(Workload(objects()), variants(), dask=wrong)
