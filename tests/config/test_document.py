"""Values mean what they mean to kube-scheduler's reader, and have their lines."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.errors import DecodeError

from .yaml_config import parse_document


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        pytest.param("a: '5'", {"a": "5"}, id="quoted is text"),
        pytest.param("a: !!str 5", {"a": "5"}, id="tagged as text"),
        pytest.param("a: &x [1]\nb: *x", {"a": [1], "b": [1]}, id="alias"),
        pytest.param("a: &x {p: 1}\nb: {<<: *x, q: 2}", {"a": {"p": 1}, "b": {"p": 1, "q": 2}}, id="merge"),
        pytest.param("a: 1\n---\nb: [", {"a": 1}, id="only the first document counts"),
        pytest.param("1: x\ntrue: z", {"1": "x", "true": "z"}, id="keys become text"),
        pytest.param("", None, id="empty"),
        pytest.param('{\t"a": [1.0, "\\ud83d\\ude00 \\\\ud83d"]}', {"a": [1.0, "😀 \\ud83d"]}, id="JSON"),
    ],
)
def test_documents(text: str, meaning: object) -> None:
    assert parse_document(text, "").plain() == meaning


def test_a_json_float_stays_a_float() -> None:
    """In JSON 1.0 is no integer; YAML makes it one on its way to JSON."""
    (one,) = parse_document("[1.0]", "").plain()
    assert type(one) is int
    assert type(parse_document('{"a": 1.0}', "").plain()["a"]) is float


def test_values_have_their_lines() -> None:
    """The line of a field is that of its name, of an element where it begins."""
    document: Any = parse_document("a:\n\n  b:\n  - 1\n  - c: 2\n", "")
    b = document.content["a"].content["b"]
    assert (document.content["a"].line, b.line) == (1, 3)
    assert [element.line for element in b.content] == [4, 5]


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        pytest.param("a: [1", 2, "not YAML", id="broken YAML"),
        pytest.param("a:\n\tb: 1", 2, "not YAML", id="tab"),
        pytest.param("a: 1\nb: 2\na: 3", 3, 'key "a" occurs twice', id="key twice"),
        pytest.param("x: &x {p: 1}\ny: {<<: *x, p: 2}", 2, 'key "p" occurs twice', id="key twice by merging"),
        pytest.param("x: {<<: 5}", 1, "only mappings can be merged", id="merging a number"),
        pytest.param('{"a": 1,\n"a": 2}', 2, 'key "a" occurs twice', id="key twice in JSON"),
        pytest.param("{a: 1}", 1, "not JSON", id="what begins like JSON is JSON"),
        pytest.param('{"a": NaN}', None, "not JSON", id="not a number"),
        pytest.param("a: &x [*x]", 1, "refers to what contains it", id="endless alias"),
        pytest.param("? [1]\n: 2", 1, "must be a word", id="list as key"),
        pytest.param("a: !!set {}\nb: !mine 3", 2, "means nothing here", id="unknown tag"),
        pytest.param("a: 1e999", 1, "too large", id="infinite number"),
        pytest.param(f"a: 1{'0' * 5000}", 1, "too many digits", id="long number"),
        pytest.param("a: \x00", 1, "not YAML", id="control character"),
        pytest.param("[" * 5000 + "]" * 5000, 1, "too deeply", id="deep"),
        pytest.param('{"a":' * 100_000, None, "too deeply", id="deep JSON"),
        pytest.param(
            "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
            + "".join(
                f"{k}: &{k} [{','.join([f'*{p}'] * 10)}]\n" for p, k in zip("abcde", "bcdef", strict=True)
            ),
            5,
            "too many values",
            id="multiplying aliases",
        ),
    ],
)
def test_what_is_rejected(text: str, line: int | None, problem: str) -> None:
    with pytest.raises(DecodeError, match=problem) as caught:
        parse_document(text, "f.yaml")
    assert (caught.value.source, caught.value.line) == ("f.yaml", line)
