"""What queues deserve by the plugin proportion, kept up to date as their requests change.

`accounts.fill` distributes the cluster over all queues, which takes time for each of them. Most changes
concern one queue: of a resource of which something is left over, every queue deserves what it requests; of
one that is used up, a queue that wants more than it deserves may want even more, and nothing changes.
`adjust` handles these, and returns False if the cluster has to be distributed again.
"""

from __future__ import annotations

from math import inf

from bayplan.queues.volcano.accounts import Account
from bayplan.queues.volcano.resources import Resources, min_amount


class Proportion:
    """What is left over after the last distribution.

    Args:
        capacity: what was distributed.
        rest: what is left of it; resources of which nothing is left are absent.
    """

    def __init__(self, capacity: Resources, rest: Resources) -> None:
        self._capacity = capacity
        self._rest = dict(rest)

    def adjust(self, account: Account, request: Resources) -> bool:
        """Changes what a queue requests, and what it deserves if that depends on nothing else.

        Returns:
            False if other queues deserve more or less now, too.
        """
        before, account.request = account.request, request
        deserved, growth = dict(account.deserved), dict[str, float]()
        for kind in self._capacity:
            old, new = _wanted(account, before, kind), _wanted(account, request, kind)
            if old == new:
                continue
            own, rest = deserved.get(kind, 0.0), self._rest.get(kind, 0.0)
            if rest < (least := min_amount(kind)):
                if own + least < min(old, new):
                    continue
                return False
            if new - own >= rest:
                return False
            deserved[kind], growth[kind] = new, new - own
        account.deserved = deserved
        for kind, amount in growth.items():
            self._rest[kind] -= amount
        return True


def _wanted(account: Account, request: Resources, kind: str) -> float:
    """What a queue would deserve if everything were there."""
    limit = account.real_capability.get(kind, 0.0 if kind in ("cpu", "memory") else inf)
    return max(min(request.get(kind, 0.0), limit), account.guarantee.get(kind, 0.0))
