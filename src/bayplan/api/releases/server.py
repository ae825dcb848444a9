"""How releases differ in the API that the embedded server serves, apart from its fields.

The defaults are those of v1.36; `v1_37.py` names what changed. All are keyed by kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ServerRules:
    """What API servers of a release do beyond those of the first one."""

    statuses: frozenset[str] = frozenset()
    """Kinds that have the subresource `status`."""
    generations: frozenset[str] = frozenset()
    """Kinds whose metadata.generation counts the changes of the spec."""
    selectable: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Fields that a field selector may name."""
    defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Values of fields that are absent, where the object around them is there."""
