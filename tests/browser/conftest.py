"""Tests in a real browser: `make test-browser`. Other runs leave them out."""

from __future__ import annotations

import os

if not os.environ.get("BAYPLAN_BROWSER"):
    collect_ignore_glob = ["test_*.py"]
