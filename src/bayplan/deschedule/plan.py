"""A plan: moves in order, each with its target node; and the pods that stay, with the reason.

A move is an eviction and the node of the replacement. Moves are made in the order of the plan: each was
checked on the cluster as it is after the moves before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from bayplan.errors import DecodeError

KIND: Final = "DeschedulePlan"


@dataclass(frozen=True, slots=True)
class Move:
    """One step of a plan."""

    pod: str
    """namespace/name"""
    uid: str
    source: str
    """The node that the pod is on."""
    target: str
    """The node that its replacement gets; empty if there is none, because the pod has finished."""
    profile: str
    strategy: str
    why: str
    """Why the pod is moved, and why that helps."""
    gain: float = 0.0
    """By how much the strategy's objective improves; 0 for violated rules."""
    budget: str = ""
    """The PodDisruptionBudget that the eviction uses up."""
    after: tuple[int, ...] = ()
    """The steps that make room on the target, counted from 1."""
    owner: str = ""
    """Kind and name of the controller."""
    upstream: bool = True
    """Whether descheduler would evict the pod, too."""
    nominated: bool = False
    """Whether the replacement gets the target only because it is nominated to it."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A candidate that is not moved."""

    pod: str
    node: str
    profile: str
    strategy: str
    why: str
    upstream: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """The moves that a cycle would make."""

    moves: tuple[Move, ...] = ()
    kept: tuple[Kept, ...] = ()
    upstream_evictions: int = 0
    """How many pods descheduler would evict with the same policy."""
    emptied: tuple[str, ...] = ()
    """Nodes that have no pods left but those of DaemonSets."""
    errors: tuple[str, ...] = ()
    """Strategies that could not run."""
    warnings: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "moves": [_renamed(asdict(one)) for one in self.moves],
            "kept": [_renamed(asdict(one)) for one in self.kept],
            "upstreamEvictions": self.upstream_evictions,
            "emptied": list(self.emptied),
            "errors": list(self.errors),
            "warnings": list(self.warnings),
        }


_NAMES: Final = {"source": "from", "target": "to"}


def _renamed(content: dict[str, Any]) -> dict[str, Any]:
    return {_NAMES.get(key, key): value for key, value in content.items()}


def read_moves(document: Mapping[str, Any], source: str = "") -> Sequence[Move]:
    """The moves of a plan that was printed as JSON or YAML.

    Raises:
        DecodeError: it is not a plan.
    """
    if document.get("kind") != KIND or not isinstance(document.get("moves"), list):
        raise DecodeError(f"expected a document of kind {KIND} with moves", source=source)
    back: dict[str, str] = {value: key for key, value in _NAMES.items()}
    known = Move.__dataclass_fields__.keys()
    moves = []
    for i, one in enumerate(document["moves"]):
        fields: dict[str, Any] = {back.get(str(key), str(key)): value for key, value in one.items()}
        missing = {"pod", "uid", "source", "target"} - fields.keys()
        if missing or not fields.keys() <= known:
            raise DecodeError("this is not a move of a plan", source=source, field=f"moves[{i}]")
        moves.append(Move(**{**fields, "after": tuple(fields.get("after", ()))}))
    return moves
