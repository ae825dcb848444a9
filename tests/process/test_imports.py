"""What a start imports: time that passes before the first pod is scheduled."""

from __future__ import annotations

import subprocess
import sys

NEEDED_LATER = ("bayplan.extender", "prometheus_client", "aiohttp", "cryptography")
"""By configurations with extenders, by the first scrape, by endpoints, by client certificates."""


def test_a_start_imports_nothing_that_is_needed_later_or_never() -> None:
    code = "import sys, bayplan.cli.run, bayplan.process.starting; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [name for name in loaded.stdout.split() if name.startswith(NEEDED_LATER)] == []


def test_what_if_questions_import_no_embedded_cluster() -> None:
    """It takes as long as everything else."""
    code = "import sys, bayplan.cli.capacity, bayplan.cli.whatif; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [name for name in loaded.stdout.split() if name.startswith("bayplan.embedded")] == []
