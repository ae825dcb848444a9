"""Kubernetes' own end-to-end tests on `bayplan up`: the quick ones of SIG Scheduling. `make e2e` runs all."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from conformance.e2e import run_specs
from conformance.harness.programs import Programs

QUICK: Final = r"\[sig-scheduling\] (LimitRange|SchedulerPredicates)|validates basic preemption works"
WAITS_FIVE_MINUTES: Final = r"but one using 0\.0\.0\.0 hostIP"


def test_quick_scheduling_specs_pass(programs: Programs, tmp_path: Path) -> None:
    """Limits, predicates and a preemption; nothing is prepared by hand."""
    specs = run_specs(programs, tmp_path, QUICK, WAITS_FIVE_MINUTES)
    assert [(spec.name, spec.message) for spec in specs if spec.state != "passed"] == []
    assert len(specs) == 16
