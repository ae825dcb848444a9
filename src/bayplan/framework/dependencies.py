"""What the results of a plugin depend on: the basis of caching them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bayplan.api.meta import Object
from bayplan.api.pod import Pod

PodFunction = Callable[[Pod], object]
"""A function of the pod that a plugin's results depend on."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What a plugin's results and raw scores depend on, so that they can be cached.

    A plugin that declares this guarantees that its PreFilter, Filter, PreScore and Score depend on these
    fields and functions of the pod, on the row itself and on objects of these kinds, and on nothing else. Its
    results are then computed again only for rows that changed. (NormalizeScore may read all scores.) A plugin
    that declares nothing is called in every cycle.
    """

    pod: frozenset[str]
    """Names from `runtime.signature.POD_FIELDS`."""
    usage: bool = False
    """Whether the results depend on the pods of the node, or only on the Node object."""
    kinds: tuple[type[Object], ...] = ()
    """Kinds of other objects that matter. A change of one invalidates all results of the plugin."""
    images: bool = False
    """Whether the results depend on which nodes have which images."""
    functions: tuple[PodFunction, ...] = ()
    """Functions of the pod: pods with equal values (and equal `pod` fields) share results."""
    node_kinds: tuple[type[Object], ...] = ()
    """Kinds whose objects have the name of a node. Filter and Score depend only on that of the row, so a
    change of one invalidates the results for one row."""

    @classmethod
    def of(
        cls,
        *pod: str | PodFunction,
        usage: bool = False,
        kinds: tuple[type[Object], ...] = (),
        images: bool = False,
        node_kinds: tuple[type[Object], ...] = (),
    ) -> Dependencies:
        """`pod` are names of fields, or functions of the pod, such as a parsed annotation.

        A function returns what msgspec can encode: None, numbers, strings, tuples, named tuples, dicts, sets,
        dataclasses and structs made of these. It is called for every attempt, so it should be fast.
        """
        names = frozenset(field for field in pod if isinstance(field, str))
        functions = tuple(field for field in pod if not isinstance(field, str))
        return cls(names, usage, kinds, images, functions, node_kinds)
