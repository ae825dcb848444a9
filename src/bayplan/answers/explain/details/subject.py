"""What a detail is about: a pod, and the nodes that one plugin rejects for one reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.framework.plugin_api import NodeNames
from bayplan.framework.status import Code, Status
from bayplan.runtime import calls
from bayplan.runtime.framework import Framework
from bayplan.state.cluster import Cluster
from bayplan.state.interning import IdColumn
from bayplan.state.view import NodeColumns

MAX_NAMED: Final = 3
"""Taints, labels, pods or volumes that are named; the others are counted."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Nodes that one plugin rejects for the same reasons."""

    framework: Framework
    pod: Pod
    status: Status
    nodes: Sequence[str]
    rows: IdColumn

    @property
    def cluster(self) -> Cluster:
        return self.framework.cluster

    def node_objects(self) -> Iterator[Node]:
        for row in self.rows.tolist():
            node = self.cluster.nodes.node[row]
            if node is not None:
                yield node

    def pods(self) -> Iterator[Pod]:
        """The pods on these nodes."""
        for row in self.rows.tolist():
            yield from self.cluster.pods_on(row)

    def plugin_state(self) -> Any:
        """What the plugin's PreFilter has found out about the pod; None if it had nothing to do."""
        name = self.status.plugin
        step = next((one for one in self.framework.profile.filters if one.name == name), None)
        if step is None:
            return None
        search = self.framework.begin_uncached(self.pod)
        state = search.results.state_of(step) if step.cached else search.state
        answer = calls.pre_filter(step, state, self.pod, NodeColumns(self.cluster))
        if not isinstance(answer, NodeNames) and answer.code is not Code.SUCCESS:
            return None
        return state.get(name)


Describe = Callable[[Subject], str]


def named(texts: Iterable[str], most: int = MAX_NAMED) -> str:
    """The first of these texts, each once, and the number of the others."""
    found = list(dict.fromkeys(texts))
    left = len(found) - most
    return ", ".join(found[:most]) + (f" and {left:,} more" if left > 0 else "")


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
