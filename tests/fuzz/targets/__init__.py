"""The targets by name. Importing one does not start anything."""

from __future__ import annotations

import random
from typing import Any, Final, Protocol

from tests.fuzz.targets.commands import Commands
from tests.fuzz.targets.embedded import Embedded
from tests.fuzz.targets.extenders import Extenders
from tests.fuzz.targets.kubeconfigs import Kubeconfigs
from tests.fuzz.targets.scheduling import Scheduling


class Target(Protocol):
    """One input of the program."""

    name: str
    input_type: Any
    """What inputs are: a msgspec Struct, so that they can be saved."""

    def make(self, rng: random.Random) -> Any:
        """An input; the same for the same state of the generator."""

    def run(self, given: Any) -> None:
        """Gives an input to the program. Whatever it raises is a finding."""


_ALL: Final[tuple[Target, ...]] = (Commands(), Kubeconfigs(), Scheduling(), Embedded(), Extenders())
TARGETS: Final = {target.name: target for target in _ALL}
