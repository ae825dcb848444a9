"""Quantities ("100m", "1.5Gi", "2e3") as exact integers, and the classes of resource names.

A quantity is a decimal number with a suffix. Kubernetes stores it exactly, down to 10⁻⁹, so it is an integer
number of nano units here: sums and comparisons are exact, and rounding happens once, where a rule requires
it. Floats are never used. Texts repeat often in a cluster, so each distinct one is parsed once.

Columns hold 64-bit integers. A Pod or Node object can name amounts whose sum does not fit there (two pods
that request `7Ei`), and times that do not fit in nanoseconds (the year 2300). Such a number saturates: it
becomes the largest number of its kind. The limits are chosen so that formulas over columns cannot overflow
either: the results of `allocatable - requested - request` and `allocatable * 100` fit into 64 bits. The limit
of requests is far above that of allocatable amounts: such a request fits no node, and a node with such
requests has no room. Sums must be exact again when the large pod is gone, so they are never computed from a
saturated sum: `state/cluster.py` adds up the pods of such a row again.

https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from bayplan.api.meta import Quantity
from bayplan.api.names import label_key_problems
from bayplan.errors import QuantityError

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"
HUGEPAGES_PREFIX: Final = "hugepages-"
ATTACHABLE_VOLUMES_PREFIX: Final = "attachable-volumes-"

NANO: Final = 10**9
"""Nano units in one."""
MILLI: Final = 10**6
"""Nano units in a thousandth."""
MAX_INT64: Final = 2**63 - 1

_FORM: Final = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:([eE])([+-]?[0-9]+)|([A-Za-z]*))", re.ASCII)
_DECIMAL_EXPONENTS: Final = {
    "n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip
_BINARY_EXPONENTS: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_EXPONENT_LIMIT: Final = 1000
"""Larger exponents do not change the result (zero stays zero, the rest is out of range), so they are
capped."""

_EMPTY: Final = "it is empty"
_NO_DIGITS: Final = "it has no digits"
_TOO_LONG: Final = "it has too many digits"
_SUFFIX: Final = 'no such suffix "{suffix}" (n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or e and an exponent)'
_FORM_RULE: Final = "it must be a decimal number and an optional suffix"


def parse_quantity(quantity: Quantity | None) -> int:
    """The exact quantity in nano units.

    Fractions of a nano unit are rounded away from zero, and values with a binary suffix are capped at 2⁶³-1,
    both as upstream. A number is treated as its text, None as zero.

    Raises:
        QuantityError: the text is not a quantity.
    """
    if quantity is None:
        return 0
    return _parse(quantity if isinstance(quantity, str) else str(quantity))


def value(quantity: Quantity | None) -> int:
    """The quantity in whole units, rounded away from zero; it never leaves the range of 64 bits."""
    return whole_units(parse_quantity(quantity))


def milli_value(quantity: Quantity | None) -> int:
    """The quantity in thousandths, rounded away from zero; it never leaves the range of 64 bits."""
    return milli_units(parse_quantity(quantity))


@lru_cache(maxsize=65536)
def canonical_quantity(quantity: Quantity) -> str:
    """The quantity as an API server writes it: no fraction, and the largest suffix of its family.

    Raises:
        QuantityError: the text is not a quantity.
    """
    return quantity_text_like(parse_quantity(quantity), quantity)


def quantity_text_like(nano: int, format_of: Quantity) -> str:
    """Nano units as an API server writes them, in the number format of another quantity."""
    text = str(format_of).strip()
    if "e" in text.lower() and not text.endswith(("E", "i")):
        exponents = tuple(f"e{power}" if power else "" for power in _DECIMAL_EXPONENTS.values())
        return _with_suffix(nano, 1000, exponents)
    return quantity_text(nano, binary=is_binary(text))


def is_binary(quantity: Quantity) -> bool:
    """Whether it is written with a suffix of powers of 1024."""
    return str(quantity).strip().endswith("i")


def quantity_text(nano: int, *, binary: bool) -> str:
    """Nano units as an API server writes them, with suffixes of powers of 1024 or of 1000."""
    if binary and nano % NANO == 0 and abs(nano) >= 1024 * NANO:
        return _with_suffix(nano // NANO, 1024, ("", *_BINARY_EXPONENTS))
    return _with_suffix(nano, 1000, tuple(_DECIMAL_EXPONENTS))


def _with_suffix(number: int, base: int, suffixes: tuple[str, ...]) -> str:
    if not number:
        return "0"
    step = 0
    while number % base == 0 and step < len(suffixes) - 1:
        number //= base
        step += 1
    return f"{number}{suffixes[step]}"


def whole_units(nano: int) -> int:
    """Nano units as whole units, rounded away from zero, saturated at 64 bits."""
    return _away_from_zero(nano, NANO)


def milli_units(nano: int) -> int:
    """Nano units as thousandths, rounded away from zero, saturated at 64 bits."""
    return _away_from_zero(nano, MILLI)


def resource_units(name: str, nano: int) -> int:
    """Nano units in the unit that scheduling counts the resource in: thousandths of cpu, else whole ones."""
    return milli_units(nano) if name == CPU else whole_units(nano)


def resource_amount(name: str, quantity: Quantity | None) -> int:
    """The quantity of a resource in the unit that scheduling counts it in."""
    return resource_units(name, parse_quantity(quantity))


def resource_amounts(resources: Mapping[str, Quantity]) -> dict[str, int]:
    """Resources as requests, limits and nodes list them, each in the unit that scheduling counts it in."""
    return {name: resource_units(name, parse_quantity(quantity)) for name, quantity in resources.items()}


def amount_text(name: str, amount: int) -> str:
    """An amount of a resource, in the unit that scheduling counts it in, as a quantity."""
    is_bytes = name in ("memory", "ephemeral-storage") or name.startswith("hugepages-")
    return quantity_text(amount * (MILLI if name == CPU else NANO), binary=is_bytes)


@lru_cache(maxsize=4096)
def is_extended_resource(name: str) -> bool:
    """Whether `name` is a device plugin's or an administrator's (`example.com/gpu`), not Kubernetes' own."""
    return (
        "/" in name
        and "kubernetes.io/" not in name
        and not name.startswith("requests.")
        # There must be a quota for it, whose name has the prefix.
        and not label_key_problems(f"requests.{name}")
    )


@lru_cache(maxsize=4096)
def is_scalar_resource(name: str) -> bool:
    """Whether `name` is counted in whole units beside cpu, memory and ephemeral-storage."""
    return (
        name.startswith((HUGEPAGES_PREFIX, ATTACHABLE_VOLUMES_PREFIX))
        or "kubernetes.io/" in name
        or is_extended_resource(name)
    )


@lru_cache(maxsize=4096)
def is_tracked_resource(name: str) -> bool:
    """Whether scheduling counts requests for `name` at all; other names are ignored."""
    return name in (CPU, MEMORY, EPHEMERAL_STORAGE) or is_scalar_resource(name)


@lru_cache(maxsize=65536)
def _parse(text: str) -> int:
    trimmed = text.strip()
    form = _FORM.fullmatch(trimmed)
    if form is None:
        raise _error(text, _FORM_RULE if trimmed else _EMPTY)
    sign, whole, fraction, exponent_mark, exponent, suffix = form.groups(default="")
    digits = whole + fraction
    if not digits:
        raise _error(text, _NO_DIGITS if trimmed else _EMPTY)
    try:
        number = int(digits)
    except ValueError as error:  # Python does not convert thousands of digits
        raise _error(text, _TOO_LONG) from error
    if suffix in _BINARY_EXPONENTS:
        # Binary suffixes carry no decimal exponent, so the only fraction is the written one.
        nano = _scaled(number << _BINARY_EXPONENTS[suffix], 9 - len(fraction))
        nano = min(nano, MAX_INT64 * NANO)
    else:
        if exponent_mark:
            power = max(-_EXPONENT_LIMIT, min(_EXPONENT_LIMIT, _exponent(text, exponent)))
        elif suffix in _DECIMAL_EXPONENTS:
            power = _DECIMAL_EXPONENTS[suffix]
        else:
            raise _error(text, _SUFFIX.format(suffix=suffix))
        nano = _scaled(number, 9 + power - len(fraction))
    return -nano if sign == "-" else nano


def _exponent(text: str, exponent: str) -> int:
    try:
        return int(exponent)
    except ValueError as error:
        raise _error(text, _TOO_LONG) from error


def _scaled(number: int, power: int) -> int:
    """number x 10^power, rounded up; `number` is not negative."""
    if power >= 0:
        return number * _power_of_ten(power)
    return -(-number // _power_of_ten(-power))


def _power_of_ten(power: int) -> int:
    return int(10**power)  # int(): the type of ** depends on the sign, which is checked by the callers


def _away_from_zero(nano: int, unit: int) -> int:
    return min(-(-nano // unit), MAX_INT64) if nano >= 0 else max(nano // unit, -MAX_INT64)


def _error(text: str, why: str) -> QuantityError:
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    return QuantityError(f'"{shown}" is not a quantity: {why}')


MAX_ALLOCATABLE: Final = 2**56
"""64Pi. A node that offers more of a resource is treated as offering this much."""

MAX_REQUEST: Final = 2**62 - 1
"""What a pod can request of a resource, and what all pods of a node can request together."""

LARGE_REQUEST: Final = 2**48
"""256Ti. Sums over pods that request less need no care: 16,384 of them on one node stay below MAX_REQUEST."""

MAX_NANOS: Final = 2**63 - 2
"""The latest time of a column (in the year 2262). One more means that there is no time."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def saturated_allocatable(amount: int) -> int:
    """An amount of a resource that a node offers, within the limits. A negative amount counts as none."""
    return min(max(amount, 0), MAX_ALLOCATABLE)


def saturated_request(amount: int) -> int:
    """A request, or a sum of requests, within the limits. A negative request counts as none."""
    return min(max(amount, 0), MAX_REQUEST)


def saturated_nanos(time: datetime) -> int:
    """Nanoseconds since the epoch, within the limits: 1677 for all earlier years, 2262 for all later ones."""
    since = time - _EPOCH
    nanos = ((since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds) * 1000
    return min(max(nanos, -MAX_NANOS), MAX_NANOS)
