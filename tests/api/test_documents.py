"""Files of YAML and JSON: documents with their lines, and errors with their position."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from bayplan.api.documents import Document, parse_documents, read_documents
from bayplan.errors import DecodeError


def parse(text: str | bytes, *, is_json: bool = False) -> list[Document]:
    data = text.encode() if isinstance(text, str) else text
    return list(parse_documents(data, "f", is_json=is_json))


@pytest.mark.parametrize(
    ("text", "content"),
    [
        pytest.param("a: 12:30", {"a": "12:30"}, id="a time of day is text"),
        pytest.param("a: 2026-01-31", {"a": "2026-01-31"}, id="a date is text"),
        pytest.param("a: =", {"a": "="}, id="an equals sign is text"),
        pytest.param("a: 1e3", {"a": 1000}, id="a number with an exponent"),
        pytest.param("a: 010", {"a": 8}, id="a leading zero is octal"),
        pytest.param("a: 0x1F", {"a": 31}, id="hexadecimal"),
        pytest.param("a: -7", {"a": -7}, id="an integer"),
        pytest.param("a: 1.5", {"a": 1.5}, id="a number with a fraction"),
        pytest.param("a: yes", {"a": True}, id="yes is true"),
        pytest.param("a: ~", {"a": None}, id="a tilde is null"),
        pytest.param(
            "x: &x {b: 1}\na: {<<: *x, c: 2}", {"x": {"b": 1}, "a": {"b": 1, "c": 2}}, id="merged mappings"
        ),
        pytest.param(
            "x: &x {b: 1}\na: {<<: *x, b: 2}", {"x": {"b": 1}, "a": {"b": 2}}, id="a merged key overruled"
        ),
        pytest.param("1: a\ny: b", {"1": "a", "true": "b"}, id="keys are text"),
        pytest.param("\ufeffa: 1", {"a": 1}, id="a byte order mark"),
    ],
)
def test_yaml_values(text: str, content: object) -> None:
    """Text means what it means to kubectl."""
    assert [document.content for document in parse(text)] == [content]


def test_a_long_list_is_no_crowd_of_aliases() -> None:
    """Aliases that multiply are rejected (`tests/config/test_document.py`), and nothing else is."""
    (document,) = parse("[" + "1," * 150_000 + "1]")
    assert len(document.content) == 150_001


def test_documents_have_their_lines() -> None:
    documents = parse("# comment\na: 1\n---\n---\n\nb: 2\n")
    assert [(document.content, document.line) for document in documents] == [({"a": 1}, 2), ({"b": 2}, 6)]


def test_json_documents_may_follow_each_other() -> None:
    documents = parse('{"a": 1}\n\n{"b":\n 2} null 3\n', is_json=True)
    assert [(document.content, document.line) for document in documents] == [
        ({"a": 1}, 1),
        ({"b": 2}, 3),
        (3, 4),
    ]


@pytest.mark.parametrize(
    ("path", "line"),
    [
        pytest.param("", 2, id="the document"),
        pytest.param("spec", 3, id="a field"),
        pytest.param("spec.list[1]", 6, id="an item"),
        pytest.param("spec.list[1].name", 6, id="a field of an item"),
        pytest.param("spec.list[1].labels[a.b/c]", 8, id="a key with dots"),
        pytest.param("spec.list[1].nothing.here", 6, id="what is not there: the nearest that is"),
        pytest.param("spec.list[7]", 4, id="an item that is not there"),
    ],
)
def test_line_of_a_field(path: str, line: int) -> None:
    (document,) = parse(
        "---\nkind: X\nspec:\n  list:\n  - name: a\n  - name: b\n    labels:\n      a.b/c: 1\n"
    )
    assert document.line_of(path) == line


def test_json_fields_are_found_by_their_document() -> None:
    (document,) = parse('\n{"a":\n{"b": 1}}', is_json=True)
    assert document.line_of("a.b") == 2


def test_two_escapes_are_a_character() -> None:
    (document,) = parse('{"a": "\\ud83d\\ude00"}', is_json=True)
    assert document.content == {"a": "\U0001f600"}


@pytest.mark.parametrize(
    ("text", "is_json", "message"),
    [
        pytest.param(
            "a: [1\nb: 2\n",
            False,
            "f:2: this is not YAML: while parsing a fl",
            id="broken YAML",
        ),
        pytest.param("a: 1\nb: *x\n", False, "f:2: this is not YAML: found", id="an alias of nothing"),
        pytest.param(
            "a: !!python/none x\n",
            False,
            "f:1: the tag tag:yaml.org,2002:python/none means nothing here",
            id="a Python tag",
        ),
        pytest.param("a: 1\nb:\n  c: 1\n  c: 2\n", False, 'f:4: the key "c" occurs twice', id="a key twice"),
        pytest.param(
            "a: 1\n\x01: 2\n",
            False,
            "f:2: this is not YAML: a character",
            id="a control character",
        ),
        pytest.param(b"a: 1\nb: \xff\n", False, "f:2: it is not UTF-8 text", id="not UTF-8"),
        pytest.param("&a [*a]", False, "f:1: an alias refers to what contains it", id="a list inside itself"),
        pytest.param("[" * 100_000, False, "f:1: lists and mappings are nested too", id="deep flow lists"),
        pytest.param("{a: " * 100_000, False, "f:1: lists and mappings are nested too", id="deep mappings"),
        pytest.param("- " * 30_000, False, "f:1: lists and mappings are nested too", id="deep block lists"),
        pytest.param(
            "".join(" " * depth + "a:\n" for depth in range(500)),
            False,
            "f:201: lists and mappings are nested too",
            id="deep block mappings",
        ),
        pytest.param(
            "a0: &a0 [1]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 400)),
            False,
            "f:200: lists and mappings are nested too",
            id="aliases of aliases",
        ),
        pytest.param("[" * 100_000, True, "f:1: lists and mappings are nested too", id="deep JSON"),
        pytest.param('{"a": 1,\n"b" 2}', True, "f:2: Expecting ':' delimiter", id="broken JSON"),
        pytest.param('{"a": 1,\n"a": 2}', True, 'f:2: the key "a" occurs twice', id="a JSON key twice"),
        pytest.param('\n{"a": NaN}', True, "f:2: NaN is not a JSON number", id="not a number"),
        pytest.param(
            '\n{"a": ["\\ud800"]}',
            True,
            "f:2: an escape such as \\ud800 is only half of a character",
            id="half of a character",
        ),
    ],
)
def test_broken_text(text: str | bytes, is_json: bool, message: str) -> None:
    with pytest.raises(DecodeError) as caught:
        parse(text, is_json=is_json)
    assert str(caught.value).startswith(message)


def test_a_directory_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    (tmp_path / "b.yml").write_text("a: 2")
    (tmp_path / "a.yaml").write_text("a: 1")
    (tmp_path / "c.json.gz").write_bytes(gzip.compress(b'{"a": 3} {"a": 4}'))
    (tmp_path / "notes.txt").write_text("a: 99")
    (tmp_path / "d.yaml").mkdir()
    documents = list(read_documents(tmp_path))
    assert [document.content["a"] for document in documents] == [1, 2, 3, 4]
    assert documents[2].source == str(tmp_path / "c.json.gz")


def test_a_single_file_may_have_any_name(tmp_path: Path) -> None:
    file = tmp_path / "manifest"
    file.write_text("a: 1")
    assert [document.content for document in read_documents(file)] == [{"a": 1}]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param("missing.yaml", "No such file or directory", id="a file that is not there"),
        pytest.param("empty", "the directory holds no .yaml, .yml or .json file", id="an empty directory"),
        pytest.param("false.yaml.gz", "it is not a gzip file", id="an invalid gzip file"),
        pytest.param("cut.yaml.gz", "it is not a gzip file", id="half a gzip file"),
    ],
)
def test_unreadable_files(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "false.yaml.gz").write_bytes(b"a: 1")
    (tmp_path / "cut.yaml.gz").write_bytes(gzip.compress(b"a: 1" * 100)[:-9])
    with pytest.raises(DecodeError) as caught:
        list(read_documents(tmp_path / name))
    assert str(caught.value).startswith(f"{tmp_path / name}: {message}")
