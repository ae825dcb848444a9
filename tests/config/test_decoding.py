"""Records are filled field by field; every problem has its line and field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
import pytest

from bayplan.config.decoding import Decoder, Float32, shortest_float32
from bayplan.errors import DecodeError
from bayplan.framework.args import Duration, Int32

from .yaml_config import parse_document


class Inner(msgspec.Struct, frozen=True, rename="camel"):
    max_skew: Int32 = 1
    name: str = "none"


@dataclass
class Plain:
    size: int
    words: list[str]


class Outer(msgspec.Struct, frozen=True, rename="camel"):
    count: int = 3
    share: Float32 = 0.5
    bright: bool = False
    wait: Duration = Duration()
    inner: Inner = Inner()
    several: tuple[Inner, ...] = ()
    maybe: Inner | None = None
    labels: dict[str, str] = {}
    color: Literal["red", "blue"] = "red"
    few: Annotated[int, msgspec.Meta(ge=1, le=3)] = 1
    plain: Plain | None = None
    either: int | str = 0

    def __post_init__(self) -> None:
        if self.count == 13:
            raise ValueError("13 is unlucky")


def decode(text: str) -> Outer:
    decoder = Decoder()
    decoded = decoder.decode(parse_document(text, ""), Outer)
    decoder.raise_problems("f.yaml")
    assert decoded is not None
    return decoded


@pytest.mark.parametrize(
    ("text", "record"),
    [
        pytest.param("{}", Outer(), id="nothing given"),
        pytest.param("count: 5\nshare: 2\nbright: yes", Outer(count=5, share=2.0, bright=True), id="scalars"),
        pytest.param("count: null\ninner: null\nmaybe:", Outer(), id="null is not given"),
        pytest.param("wait: 1m30s", Outer(wait=Duration.of(90)), id="duration"),
        pytest.param("inner: {maxSkew: 2}", Outer(inner=Inner(max_skew=2)), id="nested"),
        pytest.param(
            "several: [{name: a}, null]", Outer(several=(Inner(name="a"), Inner())), id="null element"
        ),
        pytest.param("maybe: {}", Outer(maybe=Inner()), id="optional and given"),
        pytest.param("labels: {a: b}", Outer(labels={"a": "b"}), id="mapping"),
        pytest.param("color: blue\nfew: 3", Outer(color="blue", few=3), id="types of msgspec"),
        pytest.param("plain: {size: 1, words: [x]}", Outer(plain=Plain(1, ["x"])), id="dataclass"),
        pytest.param("either: x", Outer(either="x"), id="union"),
    ],
)
def test_records(text: str, record: Outer) -> None:
    assert decode(text) == record


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1", "f.yaml:1: a: unknown field"),
        ("Count: 1", 'f.yaml:1: Count: unknown field, did you mean "count"?'),
        ("max_skew: 1", "f.yaml:1: max_skew: unknown field"),
        ("\ninner:\n  max_skew: 1", 'f.yaml:3: inner.max_skew: unknown field, did you mean "maxSkew"?'),
        ("several:\n- name: a\n- nam: b", 'f.yaml:3: several[1].nam: unknown field, did you mean "name"?'),
        ("count: many", 'f.yaml:1: count: expected an integer, got the string "many"'),
        ("count: 1.5", "f.yaml:1: count: expected an integer, got the number 1.5"),
        ("count: true", "f.yaml:1: count: expected an integer, got true"),
        ("bright: 1", "f.yaml:1: bright: expected true or false, got the number 1"),
        ("share: x", 'f.yaml:1: share: expected a number, got the string "x"'),
        ("share: 1e300", "f.yaml:1: share: expected a number that fits into 32 bits, got the number 1e+300"),
        ("inner: [1]", "f.yaml:1: inner: expected a mapping, got a list"),
        ("several: {a: 1}", "f.yaml:1: several: expected a list, got a mapping"),
        ("labels: {a: 1}", "f.yaml:1: labels.a: expected a string, got the number 1"),
        ("wait: 5", 'f.yaml:1: wait: expected a duration such as "1m30s", got the number 5'),
        ("wait: 5x", 'f.yaml:1: wait: expected a duration such as "1m30s", got the string "5x"'),
        ("inner: {maxSkew: 3000000000}", "f.yaml:1: inner.maxSkew: expected int <= 2147483647, "),
        (f"count: {2**63}", "f.yaml:1: count: expected a number that fits into 64 bits, "),
        ("color: green", "f.yaml:1: color: invalid enum value 'green', not the string"),
        ("plain: {words: []}", "f.yaml:1: plain.size: this field must be given"),
        ("count: 13", "f.yaml:1: 13 is unlucky"),
        ("[]", "f.yaml:1: expected a mapping, got a list"),
        ("a: 1\nb: 2", "f.yaml: line 1: a: unknown field; line 2: b: unknown field"),
    ],
)
def test_problems(text: str, message: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(text)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("number", "kept"),
    [(5.5, 5.5), (0.1, 0.1), (5.123456789, 5.123457), (16777217.0, 16777216.0), (0.0, 0.0)],
)
def test_floats_of_32_bits_print_short(number: float, kept: float) -> None:
    assert shortest_float32(number) == kept
