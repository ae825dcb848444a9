"""Errors of the allocation, which end the scheduling attempt instead of rejecting the node."""

from __future__ import annotations

from bayplan.errors import BayplanError


class AllocationError(BayplanError):
    """The claims cannot be allocated as they are; ends the scheduling attempt with this text."""


class AllocationTimeoutError(AllocationError):
    """The search took longer than it may."""
