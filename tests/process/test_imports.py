"""What a start imports: time that passes before the first pod is scheduled."""

from __future__ import annotations

import subprocess
import sys

NEEDED_LATER = (
    "bayplan.extender",
    "bayplan.process.recording",
    "prometheus_client",
    "aiohttp",
    "cryptography",
)
"""By configurations with extenders, by --record, by the first scrape, by endpoints, by certificates."""


def test_a_start_imports_nothing_that_is_needed_later_or_never() -> None:
    code = "import sys, bayplan.cli.run, bayplan.process.starting; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [name for name in loaded.stdout.split() if name.startswith(NEEDED_LATER)] == []


EMBEDDED_CLUSTER = tuple(
    f"bayplan.embedded.{part}"
    for part in (
        "up",
        "kubelets",
        "drivers",
        "controllers",
        "server.http",
        "server.database",
        "server.objects",
    )
)


def test_what_if_questions_import_no_embedded_cluster() -> None:
    """They use the rules of its API server (defaults, validation), and neither the server nor its store."""
    code = "import sys, bayplan.cli.capacity, bayplan.cli.whatif; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = loaded.stdout.split()
    assert "bayplan.embedded.server.validation" in names
    assert [name for name in names if name.startswith((*EMBEDDED_CLUSTER, "aiohttp"))] == []
