"""The user of a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

ANONYMOUS: Final = "system:anonymous"
AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"
MASTERS: Final = "system:masters"


@dataclass(frozen=True, slots=True)
class User:
    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def known(self) -> User:
        """The user as a member of system:authenticated."""
        return replace(self, groups=tuple(dict.fromkeys((*self.groups, AUTHENTICATED))))


ANONYMOUS_USER: Final = User(ANONYMOUS, (UNAUTHENTICATED,))
