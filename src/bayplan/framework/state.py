"""What plugins remember between the extension points of one scheduling cycle."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable
from typing import Any, Protocol, TypeVar, runtime_checkable

T = TypeVar("T")


@runtime_checkable
class Cloneable(Protocol):
    """State that AddPod and RemovePod change says how it is copied; all other state is shared by copies."""

    def clone(self) -> Any: ...


class NotInStateError(LookupError):
    """A plugin read what it has not written in this cycle. The text is upstream's."""

    def __init__(self) -> None:
        super().__init__("not found")


class CycleState:
    """A store of values by key; a plugin uses its own name, or tuples that begin with it.

    `kept` outlives the cycle: it belongs to the pod's template (all pods that scheduling cannot tell apart)
    and is the place for what follows from the pod alone.
    """

    __slots__ = ("_values", "kept")

    def __init__(self, kept: dict[Any, Any] | None = None) -> None:
        self._values: dict[Hashable, Any] = {}
        self.kept: dict[Any, Any] = {} if kept is None else kept

    def write(self, key: Hashable, value: Any) -> None:
        self._values[key] = value

    def read(self, key: Hashable) -> Any:
        """Raises NotInStateError where nothing was written."""
        try:
            return self._values[key]
        except KeyError:
            raise NotInStateError from None

    def get(self, key: Hashable) -> Any:
        return self._values.get(key)

    def memo(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value kept for the pod's template under this key, made when first asked for."""
        try:
            found: T = self.kept[key]
        except KeyError:
            found = self.kept[key] = make()
        return found

    def clone(self) -> CycleState:
        """A copy for a what-if question. Values that can be cloned are, others are shared."""
        made = copy.copy(self)
        made._values = {
            key: value.clone() if isinstance(value, Cloneable) else value
            for key, value in self._values.items()
        }
        return made
