"""The state that plugins share between the extension points of one scheduling cycle."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

T = TypeVar("T")

BINDING_ANNOTATIONS: Final = "bayplan/binding-annotations"
"""The key of annotations (a dict) that DefaultBinder sends with the binding. Use `annotate_binding`."""

_CUT_OFF: Final = "bayplan/cut-off"

GROUP_CYCLE: Final = "bayplan/group-cycle"
"""The key of the `GroupCycleState` of a pod that is scheduled with its group."""


@dataclass(slots=True, eq=False)
class GroupCycleState:
    """What the members of a group share while the group is scheduled, until their bindings begin."""

    pending_claims: set[str] = field(default_factory=set)
    """The uids of ResourceClaims that a member has got an allocation for."""
    is_simulated: bool = True
    """Whether members are placed only to see whether they fit: whatever happens is reverted."""


@runtime_checkable
class Cloneable(Protocol):
    """State that AddPod and RemovePod change, with a method to copy it; all other state is shared by
    copies."""

    def clone(self) -> Any: ...


class NotInStateError(LookupError):
    """A plugin read a key that it has not written in this cycle. The text is upstream's."""

    def __init__(self) -> None:
        super().__init__("not found")


class SignatureMemory:
    """Values for all pods with one signature: at most one value of each type for each key.

    It outlives the cycle, so a value in it must depend on the signature alone, or know when it is stale
    (`bayplan/clock.py`).

    `shared` is a memory for the pods of all signatures, or this one if nothing is cached.
    """

    __slots__ = ("_values", "shared")

    def __init__(self, shared: SignatureMemory | None = None) -> None:
        self._values: dict[tuple[type[Any], Hashable], Any] = {}
        self.shared = self if shared is None else shared

    def get(self, kind: type[T], key: Hashable = None) -> T | None:
        """The value of this type, or None."""
        found: T | None = self._values.get((kind, key))
        return found

    def put(self, value: T, key: Hashable = None) -> T:
        """Stores the value in place of the one of the same type."""
        self._values[type(value), key] = value
        return value


class CycleState(dict[Hashable, Any]):
    """Values by key; a plugin uses its own name, or tuples that begin with it."""

    __slots__ = ("signature",)

    signature: SignatureMemory
    """Outlives the cycle: it belongs to all pods with the pod's signature."""

    @classmethod
    def of(cls, signature: SignatureMemory) -> CycleState:
        """The state of a cycle for a pod with this signature."""
        made = cls()
        made.signature = signature
        return made

    def __getattr__(self, name: str) -> SignatureMemory:
        """The memory of a state that belongs to no cycle, created on first use."""
        if name != "signature":
            raise AttributeError(name)
        self.signature = made = SignatureMemory()
        return made

    def write(self, key: Hashable, value: Any) -> None:
        self[key] = value

    def read(self, key: Hashable) -> Any:
        """Raises NotInStateError if nothing was written."""
        try:
            return self[key]
        except KeyError:
            raise NotInStateError from None

    def memo(self, key: Hashable, make: Callable[[], T]) -> T:
        """A value that depends on the pod's signature alone, computed on first use."""
        known = self.signature.get(_Memo, key)
        if known is None:
            known = self.signature.put(_Memo(make()), key)
        found: T = known.value
        return found

    def clone(self) -> CycleState:
        """A copy for a hypothesis. Values that can be cloned are cloned, others are shared."""
        made = CycleState.of(self.signature)
        for key, value in self.items():
            made[key] = value.clone() if isinstance(value, Cloneable) else value
        return made


def mark_cut_off(state: CycleState) -> None:
    """The plugin ends a search before its end, because it takes too long.

    If no node is found, the pod has a longer backoff: the next attempt will take as long.
    """
    state.write(_CUT_OFF, True)


def is_cut_off(state: CycleState) -> bool:
    """Whether a plugin ended a search of this attempt before its end."""
    return _CUT_OFF in state


class _Memo:
    """A value of `CycleState.memo`."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def annotate_binding(state: CycleState, annotations: Mapping[str, str]) -> None:
    """Adds annotations to the pod when it is bound, in the same write. For Reserve, Permit and PreBind.

    A binder other than DefaultBinder (another plugin, an extender) may ignore them.
    """
    state.write(BINDING_ANNOTATIONS, {**(state.get(BINDING_ANNOTATIONS) or {}), **annotations})
