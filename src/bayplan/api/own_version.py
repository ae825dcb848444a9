"""The `apiVersion` of the documents that bayplan itself defines: its configuration, scenarios and results.

All of them have the same version, and their kinds tell them apart. docs/versions.md lists them.
"""

from __future__ import annotations

from typing import Final

OWN_API_VERSION: Final = "bayplan/v1"
