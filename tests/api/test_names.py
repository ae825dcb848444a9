"""Names and labels have the syntax that Kubernetes gives them, and its words for what is wrong."""

from __future__ import annotations

import pytest

from bayplan.api.names import (
    dns_label_problems,
    dns_subdomain_problems,
    label_key_problems,
    label_value_problems,
    qualified_name_problems,
)

NAME_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used "
    "for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


@pytest.mark.parametrize("key", ["a", "A1", "a-b_c.d", "example.com/a", "x" * 63, "e.x-y.com/" + "z" * 63])
def test_good_label_keys(key: str) -> None:
    assert label_key_problems(key) == []
    assert qualified_name_problems(key) == []


@pytest.mark.parametrize(
    ("key", "problems"),
    [
        pytest.param("", ["name part must be non-empty", NAME_RULE], id="nothing"),
        pytest.param("-a", [NAME_RULE], id="a dash at the start"),
        pytest.param("a\n", [NAME_RULE], id="a line break at the end"),
        pytest.param("ä", [NAME_RULE], id="a letter that is not ASCII"),
        pytest.param("x" * 64, ["name part must be no more than 63 bytes"], id="too long"),
        pytest.param("/a", ["prefix part must be non-empty"], id="a slash and no prefix"),
        pytest.param("Ex/a", [f"prefix part {SUBDOMAIN_RULE}"], id="a prefix in capitals"),
        pytest.param(
            "e" * 254 + "/a", ["prefix part must be no more than 253 bytes"], id="a prefix that is too long"
        ),
        pytest.param("a/", ["name part must be non-empty", NAME_RULE], id="a prefix and no name"),
    ],
)
def test_bad_label_keys(key: str, problems: list[str]) -> None:
    assert label_key_problems(key) == problems


def test_a_key_with_two_slashes_is_rejected_as_a_whole() -> None:
    (problem,) = label_key_problems("a/b/c")
    assert problem.startswith("a valid label key must consist of")
    assert problem.endswith(" with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')")


@pytest.mark.parametrize(
    ("value", "problems"),
    [
        pytest.param("", [], id="the empty value is fine"),
        pytest.param("a_b", [], id="an underscore inside is fine"),
        pytest.param("x" * 63, [], id="63 bytes are fine"),
        pytest.param("x" * 64, ["must be no more than 63 bytes"], id="64 bytes are not"),
        pytest.param("a b", [VALUE_RULE], id="a blank"),
        pytest.param("_a", [VALUE_RULE], id="an underscore at the start"),
    ],
)
def test_label_values(value: str, problems: list[str]) -> None:
    assert label_value_problems(value) == problems


@pytest.mark.parametrize(
    ("name", "label_ok", "subdomain_ok"),
    [
        pytest.param("kube-system", True, True, id="a label is also a subdomain"),
        pytest.param("a.b", False, True, id="dots make it a subdomain"),
        pytest.param("A", False, False, id="capitals are in neither"),
        pytest.param("x" * 64, False, True, id="64 bytes are too long for a label"),
        pytest.param("x" * 254, False, False, id="254 bytes are too long for both"),
    ],
)
def test_dns_names(name: str, label_ok: bool, subdomain_ok: bool) -> None:
    assert (not dns_label_problems(name), not dns_subdomain_problems(name)) == (label_ok, subdomain_ok)


def test_dots_in_a_dns_label_have_their_own_message() -> None:
    assert dns_label_problems("a.b") == ["must not contain dots"]
