"""Gauges of Volcano's queues, under the names that Volcano's dashboards have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import isinf
from typing import Final

from bayplan.metrics import families as named
from bayplan.metrics.instruments import Gauge, Spec
from bayplan.queues.volcano import accounts as accounting
from bayplan.queues.volcano.accounts import Account, Entitlement
from bayplan.queues.volcano.resources import Resources

_AMOUNTS: Final[Mapping[Spec[Gauge], tuple[str, Callable[[Account], Resources]]]] = {
    named.VOLCANO_ALLOCATED_CPU: ("cpu", lambda account: account.allocated),
    named.VOLCANO_ALLOCATED_MEMORY: ("memory", lambda account: account.allocated),
    named.VOLCANO_REQUEST_CPU: ("cpu", lambda account: account.request),
    named.VOLCANO_REQUEST_MEMORY: ("memory", lambda account: account.request),
    named.VOLCANO_DESERVED_CPU: ("cpu", lambda account: account.deserved),
    named.VOLCANO_DESERVED_MEMORY: ("memory", lambda account: account.deserved),
}


def gauges_of(
    accounts: Iterable[Account], kind: Entitlement
) -> dict[Spec[Gauge], dict[tuple[str, ...], float]]:
    """The values by queue. An amount without a limit is left out."""
    others = (named.VOLCANO_SHARE, named.VOLCANO_WEIGHT, named.VOLCANO_OVERUSED)
    found: dict[Spec[Gauge], dict[tuple[str, ...], float]] = {spec: {} for spec in (*_AMOUNTS, *others)}
    for account in accounts:
        labels = (account.name,)
        for spec, (resource, amounts) in _AMOUNTS.items():
            amount = amounts(account).get(resource, 0.0)
            if not isinf(amount):
                found[spec][labels] = float(amount)
        found[named.VOLCANO_SHARE][labels] = accounting.share(account, kind)
        found[named.VOLCANO_WEIGHT][labels] = account.spec.weight
        found[named.VOLCANO_OVERUSED][labels] = accounting.overused(account, kind)
    return found
