"""Why devices cannot be allocated, where that is an error and not just "not on this node"."""

from __future__ import annotations

from bayplan.errors import BayplanError


class AllocationError(BayplanError):
    """The claims cannot be allocated as they are; ends the scheduling attempt with this text."""


class AllocationTimeoutError(AllocationError):
    """The search took longer than it may."""
