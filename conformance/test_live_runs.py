"""Recorded runs of kube-scheduler come out the same on the real API server with bayplan in its place.

`make test` plays all of them in this process and in virtual time; here it is one of each kind, with the
server's own defaulting, its watches and its idea of what a write does.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from bayplan.cli.replay import first_difference
from conformance.harness.control_plane import ControlPlane
from conformance.harness.live_run import play

RUNS = Path(__file__).parent / "runs"
KINDS = sorted(path.name.removesuffix(".jsonl.gz") for path in RUNS.glob("*.jsonl.gz"))


def first_run(kind: str) -> dict[str, Any]:
    with gzip.open(RUNS / f"{kind}.jsonl.gz", "rt") as lines:
        run: dict[str, Any] = json.loads(next(lines))
        return run


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_comes_out_the_same(plane: ControlPlane, kind: str) -> None:
    run = first_run(kind)
    assert first_difference(run, asyncio.run(play(plane, run))) is None
