"""NodeResourcesBalancedAllocation: prefers nodes whose resource usage the pod balances.

A node that is out of memory while half of its cpus are idle wastes those cpus. A node is balanced if the used
shares of its resources are equal. The score is above 75 if the pod improves the balance, and below 75 if it
makes it worse. Unlike NodeResourcesFit, this counts requests as they are, without defaults.

`score` is a formula over arrays or over the plain numbers of one row, see `node_resources_fit.py`.

https://kubernetes.io/docs/reference/scheduling/config/#scheduling-plugins
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

from bayplan.plugin import (
    MAX_SCORE,
    SKIP,
    CycleState,
    Dependencies,
    Handle,
    NodeColumns,
    Plugin,
    Pod,
    PreScorePlugin,
    ScorePlugin,
    Status,
    derived,
)
from bayplan.plugin._internal import RowScorePlugin
from bayplan.plugin.args import NodeResourcesBalancedAllocationArgs
from bayplan.plugin.devices import DEVICE_KINDS, ExtendedResources, is_device_resource, with_devices
from bayplan.plugin.objects import is_scalar_resource, is_tracked_resource

HALF: Final = MAX_SCORE // 2


class NodeResourcesBalancedAllocation(Plugin, PreScorePlugin, ScorePlugin, RowScorePlugin):
    """Prefers nodes that the pod brings into balance."""

    args_type: ClassVar = NodeResourcesBalancedAllocationArgs
    depends_on = Dependencies.of("resources", usage=True)
    elementwise = True

    args: NodeResourcesBalancedAllocationArgs

    def __init__(self, args: NodeResourcesBalancedAllocationArgs | None, handle: Handle) -> None:
        super().__init__(args, handle)
        self._scores_devices = any(is_device_resource(one.name) for one in self.args.resources)
        if self._scores_devices:
            # The score also depends on devices, so its cached results are often stale.
            self.depends_on = Dependencies.of("resources", usage=True, kinds=DEVICE_KINDS)
            self.elementwise = False

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        requests = self.release.accounting.balance_requests(pod)
        requested = [(spec.name, requests.get(spec.name, 0)) for spec in self.args.resources]
        if not any(amount for _, amount in requested):
            return SKIP
        state.write(
            self.name,
            [
                (resource, amount)
                for resource, amount in requested
                # Usage of a special resource that the pod does not request does not matter.
                if is_tracked_resource(resource) and (amount or not is_scalar_resource(resource))
            ],
        )
        return None

    def score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Any:
        counted, before, after = [], [], []
        for resource, amount in state.read(self.name):
            allocatable, used = self._amounts(nodes, resource)
            size = nodes.maximum(allocatable, 1)
            counted.append(allocatable > 0)
            before.append(nodes.minimum(used / size, 1.0))
            after.append(nodes.minimum((used + amount) / size, 1.0))
        deviation = _deviation_of_two if len(counted) == 2 else _deviation
        balance_before = nodes.trunc((1 - deviation(nodes, counted, before)) * MAX_SCORE)
        balance_after = nodes.trunc((1 - deviation(nodes, counted, after)) * MAX_SCORE)
        return HALF + nodes.trunc((HALF + balance_after - balance_before) / 2)

    def row_score(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Callable[[int], int] | None:
        """`score` for one row, of two resources."""
        counted = state.read(self.name)
        if len(counted) != 2:
            return None
        (one, one_amount), (other, other_amount) = counted
        table = nodes.cluster.nodes
        one_size, one_used = table.resource(one).allocatable, table.resource(one).requested
        other_size, other_used = table.resource(other).allocatable, table.resource(other).requested

        def score(row: int) -> int:
            size, size_2 = one_size.cell[row], other_size.cell[row]
            if size <= 0 or size_2 <= 0:
                return HALF + HALF // 2
            used, used_2 = one_used.cell[row], other_used.cell[row]
            share, share_2 = used / size, used_2 / size_2
            before = (share if share < 1.0 else 1.0) - (share_2 if share_2 < 1.0 else 1.0)
            share, share_2 = (used + one_amount) / size, (used_2 + other_amount) / size_2
            after = (share if share < 1.0 else 1.0) - (share_2 if share_2 < 1.0 else 1.0)
            balance_before = int((1 - abs(before) / 2) * MAX_SCORE)
            balance_after = int((1 - abs(after) / 2) * MAX_SCORE)
            return HALF + int((HALF + balance_after - balance_before) / 2)

        return score

    def _amounts(self, nodes: NodeColumns, resource: str) -> tuple[Any, Any]:
        """How much of a resource there is, and how much is used."""
        if self._scores_devices and is_device_resource(resource):
            found = derived(nodes.cluster, ExtendedResources).class_for(resource)
            if found is not None:
                return with_devices(nodes, resource, found)
        return nodes.allocatable(resource), nodes.requested(resource)


def _deviation_of_two(nodes: NodeColumns, counted: Sequence[Any], shares: Sequence[Any]) -> Any:
    """The standard deviation of two shares; 0 if the node lacks one of the resources."""
    return nodes.where(counted[0] & counted[1], abs(shares[0] - shares[1]) / 2, 0.0)


def _deviation(nodes: NodeColumns, counted: Sequence[Any], shares: Sequence[Any]) -> Any:
    """The standard deviation of those shares that count."""
    number: Any = 0
    total: Any = 0.0
    squares: Any = 0.0
    for counts, share in zip(counted, shares, strict=True):
        number = number + nodes.where(counts, 1, 0)
        total = total + nodes.where(counts, share, 0.0)
    number = nodes.maximum(number, 1)
    mean = total / number
    for counts, share in zip(counted, shares, strict=True):
        squares = squares + nodes.where(counts, (share - mean) * (share - mean), 0.0)
    deviation = nodes.sqrt(squares / number)
    two = number == 2
    if nodes.any(two):
        # Two shares have a formula of their own upstream; its last bit can decide where the score is cut.
        deviation = nodes.where(two, _range(nodes, counted, shares) / 2, deviation)
    return deviation


def _range(nodes: NodeColumns, counted: Sequence[Any], shares: Sequence[Any]) -> Any:
    """The largest less the smallest of those shares that count."""
    highest: Any = 0.0
    lowest: Any = 1.0
    for counts, share in zip(counted, shares, strict=True):
        highest = nodes.maximum(highest, nodes.where(counts, share, 0.0))
        lowest = nodes.minimum(lowest, nodes.where(counts, share, 1.0))
    return highest - lowest
