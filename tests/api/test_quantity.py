"""Quantities have exactly the meaning that Kubernetes gives them."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayplan.api.meta import Quantity
from bayplan.api.quantity import (
    is_extended_resource,
    is_scalar_resource,
    is_tracked_resource,
    milli_value,
    parse_quantity,
    resource_amount,
    resource_amounts,
    resource_units,
    value,
)
from bayplan.errors import QuantityError

NANO = 10**9
FACTORS = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}


@pytest.mark.parametrize(
    ("text", "nano"),
    [
        pytest.param("0", 0, id="zero"),
        pytest.param("1", NANO, id="a whole number"),
        pytest.param("007", 7 * NANO, id="leading zeros"),
        pytest.param("+3", 3 * NANO, id="a plus sign"),
        pytest.param("-3", -3 * NANO, id="a minus sign"),
        pytest.param(" 5 ", 5 * NANO, id="surrounding blanks"),
        pytest.param("1.", NANO, id="a point and no fraction"),
        pytest.param(".5", NANO // 2, id="a fraction and no whole part"),
        pytest.param("1.G", 10**9 * NANO, id="a point and a suffix"),
        pytest.param("1E", 10**18 * NANO, id="a bare E is ten to the 18"),
        pytest.param("1E3", 1000 * NANO, id="E and digits is an exponent"),
        pytest.param("1e3", 1000 * NANO, id="e and digits is an exponent"),
        pytest.param("1e+3", 1000 * NANO, id="an exponent with its sign"),
        pytest.param("1E-2", NANO // 100, id="a negative exponent"),
        pytest.param("1Ei", 2**60 * NANO, id="Ei is binary, not an exponent"),
        pytest.param("1.5Gi", 1610612736 * NANO, id="a fraction of a binary unit is exact"),
        pytest.param("0.1Ki", 102_400_000_000, id="a binary unit may leave a fraction"),
        pytest.param("1n", 1, id="the smallest unit"),
        pytest.param("0.1n", 1, id="finer than the smallest is rounded up"),
        pytest.param("-0.1n", -1, id="finer than the smallest is rounded away from zero"),
        pytest.param("1.0000000001", NANO + 1, id="a fraction beyond nine digits is rounded up"),
        pytest.param("1e-400", 1, id="a vanishing exponent still leaves something"),
        pytest.param("0e999999999999", 0, id="zero stays zero whatever its exponent"),
        pytest.param("8Ei", (2**63 - 1) * NANO, id="a binary suffix is capped at 63 bits"),
        pytest.param("-20Ei", -(2**63 - 1) * NANO, id="so is a negative one"),
        pytest.param("100E", 10**20 * NANO, id="a decimal suffix is not capped"),
        pytest.param(2, 2 * NANO, id="a JSON integer"),
        pytest.param(0.5, NANO // 2, id="a JSON number with a fraction"),
        pytest.param(1e21, 10**30, id="a JSON number whose text has an exponent"),
        pytest.param(None, 0, id="null"),
    ],
)
def test_parse(text: Quantity | None, nano: int) -> None:
    """A quantity is an exact number of nano units."""
    assert parse_quantity(text) == nano


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("", "it is empty", id="nothing"),
        pytest.param("  ", "it is empty", id="blanks"),
        pytest.param("m", "it has no digits", id="a suffix alone"),
        pytest.param(".", "it has no digits", id="a point alone"),
        pytest.param("-", "it has no digits", id="a sign alone"),
        pytest.param("1K", 'no such suffix "K"', id="K is not kilo"),
        pytest.param("1e", 'no such suffix "e"', id="an exponent without digits"),
        pytest.param("1mi", 'no such suffix "mi"', id="a mixture of suffixes"),
        pytest.param("1x", 'no such suffix "x"', id="a suffix that does not exist"),
        pytest.param("1 m", "it must be a decimal number", id="a blank inside"),
        pytest.param("1.1.M", "it must be a decimal number", id="two points"),
        pytest.param("--1", "it must be a decimal number", id="two signs"),
        pytest.param("1_000", "it must be a decimal number", id="an underscore"),
        pytest.param("٣", "it must be a decimal number", id="digits that are not ASCII"),
        pytest.param("1e1.5", "it must be a decimal number", id="an exponent with a fraction"),
        pytest.param("9" * 5000, "too many digits", id="thousands of digits"),
        pytest.param("1e" + "9" * 5000, "too many digits", id="an exponent of thousands of digits"),
        pytest.param(float("inf"), "no digits", id="infinity"),
    ],
)
def test_malformed(text: Quantity, problem: str) -> None:
    """What is not a quantity is rejected, with the text and the reason."""
    with pytest.raises(QuantityError) as caught:
        parse_quantity(text)
    assert f'"{str(text)[:50]}' in caught.value.problem
    assert problem in caught.value.problem


@pytest.mark.parametrize(
    ("text", "whole", "milli"),
    [
        pytest.param("0.0001", 1, 1, id="a trace counts as one"),
        pytest.param("100m", 1, 100, id="a part counts as a whole one"),
        pytest.param("1500m", 2, 1500, id="one and a half counts as two"),
        pytest.param("-1500m", -2, -1500, id="negative amounts round away from zero"),
        pytest.param("-1u", -1, -1, id="a negative trace counts as minus one"),
        pytest.param("2Gi", 2**31, 2**31 * 1000, id="whole numbers stay"),
        pytest.param("1e30", 2**63 - 1, 2**63 - 1, id="more than 64 bits is cut to what fits"),
        pytest.param("-1e30", -(2**63) + 1, -(2**63) + 1, id="also below zero"),
        pytest.param("1e999999", 2**63 - 1, 2**63 - 1, id="an absurd exponent costs nothing"),
    ],
)
def test_rounding(text: str, whole: int, milli: int) -> None:
    """Whole units and thousandths are rounded away from zero."""
    assert (value(text), milli_value(text)) == (whole, milli)


@pytest.mark.parametrize(
    ("name", "units"),
    [
        pytest.param("cpu", 1500, id="cpu in thousandths"),
        pytest.param("memory", 2, id="all else in whole units"),
    ],
)
def test_resource_units(name: str, units: int) -> None:
    assert resource_units(name, parse_quantity("1.5")) == units


def test_resource_amounts() -> None:
    assert resource_amounts({"cpu": "1.5", "memory": "1Ki", "example.com/gpu": 2}) == {
        "cpu": 1500,
        "memory": 1024,
        "example.com/gpu": 2,
    }
    assert (resource_amount("cpu", "250m"), resource_amount("memory", None)) == (250, 0)


@given(
    sign=st.sampled_from(["", "+", "-"]),
    whole=st.integers(0, 10**12),
    fraction=st.text("0123456789", max_size=14),
    suffix=st.sampled_from(sorted(FACTORS)),
)
def test_parse_agrees_with_fractions(sign: str, whole: int, fraction: str, suffix: str) -> None:
    """The value is that of exact arithmetic, rounded away from zero to a nano unit and capped if binary."""
    exact = (whole + Fraction(int(fraction or "0"), 10 ** len(fraction))) * FACTORS[suffix]
    nano = -(-exact * NANO // 1)
    if suffix.endswith("i"):
        nano = min(nano, (2**63 - 1) * NANO)
    assert parse_quantity(f"{sign}{whole}.{fraction}{suffix}") == (-nano if sign == "-" else nano)


@given(mantissa=st.integers(-(10**9), 10**9), exponent=st.integers(-20, 20))
def test_exponents_agree_with_fractions(mantissa: int, exponent: int) -> None:
    exact = abs(mantissa) * Fraction(10) ** exponent * NANO
    magnitude = -(-exact // 1)
    assert parse_quantity(f"{mantissa}e{exponent}") == (magnitude if mantissa >= 0 else -magnitude)


@given(nano=st.integers(-(10**30), 10**30))
def test_rounding_is_away_from_zero_and_less_than_a_unit(nano: int) -> None:
    text = f"{nano}n"
    rounded = value(text)
    if abs(rounded) < 2**63 - 1:
        assert 0 <= (abs(rounded) * NANO - abs(nano)) < NANO
        assert rounded * nano >= 0
    else:
        assert abs(nano) > (2**63 - 2) * NANO


@pytest.mark.parametrize(
    ("name", "extended", "scalar", "tracked"),
    [
        pytest.param("cpu", False, False, True, id="cpu"),
        pytest.param("memory", False, False, True, id="memory"),
        pytest.param("ephemeral-storage", False, False, True, id="ephemeral storage"),
        pytest.param("pods", False, False, False, id="pods count on the node's side only"),
        pytest.param("storage", False, False, False, id="a name that scheduling ignores"),
        pytest.param("example.com/gpu", True, True, True, id="a device"),
        pytest.param("hugepages-2Mi", False, True, True, id="huge pages"),
        pytest.param("attachable-volumes-aws-ebs", False, True, True, id="attachable volumes"),
        pytest.param("kubernetes.io/thing", False, True, True, id="Kubernetes' own prefix is not extended"),
        pytest.param("a.kubernetes.io/thing", False, True, True, id="nor is one below it"),
        pytest.param("requests.example.com/gpu", False, False, False, id="a quota's name"),
        pytest.param("example.com/a/b", False, False, False, id="two slashes"),
        pytest.param("Example.com/gpu", False, False, False, id="a prefix that is no DNS name"),
        pytest.param("example.com/" + "x" * 64, False, False, False, id="a name that is too long"),
    ],
)
def test_resource_classes(name: str, extended: bool, scalar: bool, tracked: bool) -> None:
    """Names of resources fall into classes that scheduling treats differently."""
    classes = (is_extended_resource(name), is_scalar_resource(name), is_tracked_resource(name))
    assert classes == (extended, scalar, tracked)
