"""Custom resources by their schema: what is filled in, left out, and rejected."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from bayplan.embedded.server.catalog import Catalog
from bayplan.embedded.server.custom_resources import CustomResources
from bayplan.embedded.server.embedded import open_api
from bayplan.embedded.server.kinds import CUSTOM_RESOURCE_DEFINITIONS, Resource
from bayplan.embedded.server.schema.types import TypeMismatchError, clean, type_of
from bayplan.embedded.server.statuses import StatusError
from bayplan.embedded.server.validation.custom import custom_problems, fill_in, schema_problems

SCHEMA = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 9},
                "share": {"type": "number", "minimum": 0, "exclusiveMinimum": True},
                "mode": {"type": "string", "enum": ["fast", "slow"], "default": "fast"},
                "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
                "tags": {"type": "array", "maxItems": 2, "items": {"type": "string"}},
                "limits": {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": True}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        },
    },
}  # fmt: skip
GANGS = Resource("gangs", "Gang", group="example.com", schema=SCHEMA)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        pytest.param({"size": 3, "limits": {"a": 1, "b": "2"}}, "", id="as it should be"),
        pytest.param({}, "spec.size: Required value", id="something is missing"),
        pytest.param(
            {"size": "x"},
            'spec.size: Invalid value: "string": spec.size in body must be of type integer: "string"',
            id="another type",
        ),
        pytest.param(
            {"size": 0},
            "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1",
            id="too small",
        ),
        pytest.param(
            {"size": 10},
            "spec.size: Invalid value: 10: spec.size in body should be less than or equal to 9",
            id="too large",
        ),
        pytest.param(
            {"size": 1, "share": 0},
            "spec.share: Invalid value: 0: spec.share in body should be greater than 0",
            id="not above its bound",
        ),
        pytest.param(
            {"size": 1, "mode": "x"},
            'spec.mode: Unsupported value: "x": supported values: "fast", "slow"',
            id="no choice",
        ),
        pytest.param(
            {"size": 1, "name": "A"},
            "spec.name: Invalid value: \"A\": spec.name in body should match '^[a-z]+$'",
            id="another form",
        ),
        pytest.param(
            {"size": 1, "tags": ["a", "b", "c"]},
            "spec.tags: Invalid value: 3: spec.tags in body should have at most 2 items",
            id="too many",
        ),
        pytest.param(
            {"size": 1, "tags": [1]},
            'spec.tags[0]: Invalid value: "integer": spec.tags[0] in body must be of type string: "integer"',
            id="an entry of another type",
        ),
    ],
)
def test_violations_of_the_schema(spec: dict[str, Any], problem: str) -> None:
    """With the messages of a real server, as far as it has them."""
    found = custom_problems({"metadata": {"name": "g"}, "spec": spec}, SCHEMA)
    assert [str(each) for each in found] == ([problem] if problem else [])


def test_defaults_are_filled_in() -> None:
    content = {"spec": {"size": 1}}
    fill_in(content, SCHEMA)
    assert content == {"spec": {"size": 1, "mode": "fast"}}


def test_defaults_do_not_multiply_without_limit() -> None:
    """Entries of a list times values of a default: a few megabytes would become as many gigabytes."""
    entry = {"type": "object", "properties": {"a": {"type": "array", "default": [0] * 1000}}}
    schema = {"properties": {"spec": {"type": "array", "items": entry}}}
    content: dict[str, Any] = {"spec": [{} for _ in range(1000)]}
    with pytest.raises(
        StatusError, match="more than 100000 values with the defaults of the schema"
    ) as caught:
        fill_in(content, schema)
    assert caught.value.code == 413
    assert sum(bool(each) for each in content["spec"]) < 100


def test_some_of_many_problems_are_found() -> None:
    """Each of 1,000 entries lacks 1,000 fields; texts of the schema are shortened."""
    choice = "x" * 100_000
    names = [f"f{number}" for number in range(1000)]
    for entry, content in (
        ({"type": "object", "required": names}, {}),
        ({"type": "string", "enum": [choice]}, "y"),
        ({"type": "string", "pattern": choice}, "y"),
    ):
        schema = {"properties": {"spec": {"type": "array", "items": entry}}}
        found = custom_problems({"spec": [content] * 2000}, schema)
        assert len(found) == 1000
        assert max(len(str(each)) for each in found) < 1100


def test_some_of_many_unknown_fields_are_named() -> None:
    """As many as kube-apiserver names."""
    content = {"spec": {f"odd{number}": 1 for number in range(1000)}}
    cleaned, unknown = clean(content, type_of(GANGS), lenient=True)
    assert (cleaned, len(unknown)) == ({"spec": {}}, 100)


def test_unknown_fields_are_pruned_unless_they_are_welcome() -> None:
    content = {"metadata": {"name": "g"}, "spec": {"size": "x", "odd": 1, "free": {"odd": 1}}}
    cleaned, unknown = clean(content, type_of(GANGS), lenient=True)
    assert cleaned["spec"] == {"size": "x", "free": {"odd": 1}}
    assert unknown == ["spec.odd"]


def test_metadata_is_that_of_all_kinds() -> None:
    with pytest.raises(TypeMismatchError, match="ObjectMeta"):
        clean({"metadata": {"labels": "x"}}, type_of(GANGS), lenient=True)


@pytest.mark.parametrize(
    ("schema", "field"),
    [
        pytest.param(SCHEMA, None, id="as it should be"),
        pytest.param({"pattern": None, "items": None, "required": None}, None, id="null is as absent"),
        pytest.param("x", "s", id="no schema at all"),
        pytest.param({"properties": {"a": 1}}, "s.properties[a]", id="an invalid property"),
        pytest.param({"type": "array", "items": []}, "s.items", id="invalid items"),
        pytest.param({"pattern": "("}, "s.pattern", id="no regular expression"),
        pytest.param({"required": "a"}, "s.required", id="not a list"),
        pytest.param({"minimum": True}, "s.minimum", id="not a number"),
    ],
)
def test_a_schema_has_to_be_one(schema: Any, field: str | None) -> None:
    """Otherwise objects could not be validated."""
    assert [problem.field for problem in schema_problems(schema, "s")] == ([field] if field else [])


def test_conditions_of_others_stay() -> None:
    mine = {"message": "updated"}
    status = {"conditions": [mine, {"type": "Established", "status": "False"}]}
    names = {"plural": "gangs", "kind": "Gang"}
    spec = {"group": "example.com", "names": names, "versions": []}
    definition: dict[str, Any] = {"spec": spec, "status": status}
    CustomResources(Catalog()).accept(definition, "now")
    kinds = [(one.get("type"), one.get("status")) for one in definition["status"]["conditions"]]
    assert kinds == [(None, None), ("Established", "False"), ("NamesAccepted", "True")]


def test_versions_are_stored_as_one() -> None:
    """Whatever version an object is requested in, it is the same object."""
    catalog = Catalog()
    versions = [
        {"name": name, "served": True, "storage": name == "v1", "schema": {"openAPIV3Schema": SCHEMA}}
        for name in ("v1", "v2")
    ]
    names = {"plural": "gangs", "kind": "Gang"}
    CustomResources(catalog).define(
        {"spec": {"group": "example.com", "names": names, "scope": "Namespaced", "versions": versions}}
    )
    old, new = (catalog.find("example.com", version, "gangs") for version in ("v1", "v2"))
    assert old is not None
    assert new is not None
    assert (old.stored_as, new.storage) == (None, old)


# Limits


@pytest.mark.parametrize("pattern", ["(?=a)b", r"(a)\1", "(", "a{2000}"])
def test_patterns_are_those_of_go(pattern: str) -> None:
    (problem,) = schema_problems({"pattern": pattern}, "s")
    assert "must be a valid regular expression, but isn't: error parsing regexp: " in str(problem)


def test_no_pattern_backtracks() -> None:
    """With Python's own expressions this would take longer than the universe has existed."""
    schema = {"properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    assert custom_problems({"a": "a" * 100_000}, schema) == []
    assert len(custom_problems({"a": "a" * 100_000 + "b"}, schema)) == 1


@pytest.mark.parametrize(
    ("pattern", "text", "is_found"),
    [
        ("^[a-z]+$", "abc", True),
        ("^[a-z]+$", "abc\n", False),
        ("b", "abc", True),
        (r"^\p{Greek}+$", "αβγ", True),
        ("(?i)ABC", "abc", True),
    ],
)
def test_patterns(pattern: str, text: str, is_found: bool) -> None:
    problems = custom_problems({"a": text}, {"properties": {"a": {"pattern": pattern}}})
    assert (problems == []) is is_found


def test_choices_of_any_type() -> None:
    schema = {"properties": {"a": {"enum": ["x", 1, {"b": [1, 2]}, None]}}}
    same: list[Any] = ["x", 1, {"b": [1, 2]}, None]
    for choice in same:
        assert custom_problems({"a": choice}, schema) == []
    others: list[Any] = ["y", 2, {"b": [2, 1]}, []]
    for other in others:
        assert len(custom_problems({"a": other}, schema)) == 1


@pytest.mark.parametrize(
    ("plural", "kind", "group"),
    [
        pytest.param("storageclasses", "Mine", "storage.k8s.io", id="the plural of a built-in kind"),
        pytest.param("mine", "StorageClass", "storage.k8s.io", id="its kind"),
        pytest.param("deployments", "Deployment", "apps", id="a group without a dot"),
    ],
)
def test_a_definition_cannot_replace_a_built_in_kind(plural: str, kind: str, group: str) -> None:
    """Its deletion would delete all objects of that kind."""
    api = open_api()
    version = {"name": "v9", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA}}
    spec = {
        "group": group,
        "scope": "Cluster",
        "names": {"plural": plural, "kind": kind},
        "versions": [version],
    }
    with pytest.raises(StatusError) as caught:
        api.create(CUSTOM_RESOURCE_DEFINITIONS, {"metadata": {"name": f"{plural}.{group}"}, "spec": spec})
    assert caught.value.code == 422


def test_a_definition_in_an_older_store_replaces_nothing() -> None:
    """It may have been accepted once: it is not served, and built-in kinds survive its deletion."""
    catalog = Catalog()
    before = list(catalog)
    customs = CustomResources(catalog)
    version = {"name": "v1", "served": True, "storage": True}
    spec = {"group": "apps", "names": {"plural": "deployments", "kind": "Deployment"}, "versions": [version]}
    customs.define({"spec": spec})
    customs.remove({"spec": spec})
    assert list(catalog) == before
    assert customs.resources_of({"spec": spec}) == []


def with_rules(*rules: dict[str, Any], **properties: Any) -> dict[str, Any]:
    fields = {"size": {"type": "integer"}, "max-size": {"type": "integer"}, **properties}
    spec = {"type": "object", "properties": fields, "x-kubernetes-validations": list(rules)}
    return {"type": "object", "properties": {"spec": spec}}


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param({"rule": "self.size >"}, id="it is not an expression"),
        pytest.param({"rule": "self.colour == 1"}, id="it names an unknown field"),
        pytest.param({"message": "no rule"}, id="there is none"),
        pytest.param("self.size > 2", id="it is text"),
    ],
)
def test_a_stored_rule_that_does_not_compile_rejects_objects(rule: Any) -> None:
    """A data directory may contain what is no longer accepted; a write is rejected and does not fail."""
    (problem,) = custom_problems({"metadata": {"name": "x"}, "spec": {"size": 3}}, with_rules(rule), None)
    assert str(problem).startswith('spec: Invalid value: "object": rule compile error: ')


def test_rules_are_compiled_in_threads() -> None:
    """More schemas than are cached, from several threads at once."""

    def validate(number: int) -> int:
        schema = with_rules({"rule": f"self.size > {number}"})
        return len(list(custom_problems({"metadata": {"name": "x"}, "spec": {"size": 300}}, schema, None)))

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(validate, range(600))) == 300


def broken(spec: dict[str, Any], *rules: dict[str, Any], old: Any = None, **properties: Any) -> list[str]:
    schema = with_rules(*rules, **properties)
    assert schema_problems(schema, "") == []
    before = None if old is None else {"metadata": {"name": "x"}, "spec": old}
    return list(map(str, custom_problems({"metadata": {"name": "x"}, "spec": spec}, schema, before)))


@pytest.mark.parametrize(
    ("rule", "spec", "problem"),
    [
        ({"rule": "self.size > 2"}, {"size": 3}, ""),
        ({"rule": "self.size > 2"}, {"size": 1}, 'spec: Invalid value: "object": failed rule: self.size > 2'),
        ({"rule": "self.size > 2", "message": "small"}, {"size": 1}, 'spec: Invalid value: "object": small'),
        (
            {"rule": "self.size > 2", "messageExpression": "'size ' + string(self.size)"},
            {"size": 1},
            'spec: Invalid value: "object": size 1',
        ),
        (
            {"rule": "self.size <= self.max__dash__size", "fieldPath": ".size"},
            {"size": 3, "max-size": 2},
            'spec.size: Invalid value: "object": failed rule: self.size <= self.max__dash__size',
        ),
        ({"rule": "!has(self.size) || self.size > 2"}, {}, ""),
        ({"rule": "self.size > 2"}, {}, "no such key: size"),
    ],
)
def test_a_rule_in_cel(rule: dict[str, Any], spec: dict[str, Any], problem: str) -> None:
    found = broken(spec, rule)
    assert len(found) == bool(problem)
    assert problem in "".join(found)


def test_a_rule_about_the_old_value_is_for_updates() -> None:
    rule = {"rule": "self.size == oldSelf.size", "message": "may not change"}
    assert broken({"size": 1}, rule) == []
    assert broken({"size": 1}, rule, old={"size": 1}) == []
    assert broken({"size": 1}, rule, old={"size": 2}) == ['spec: Invalid value: "object": may not change']


def test_rules_see_times_lists_and_maps() -> None:
    not_empty = {"rule": "self != ''"}
    values = {
        "until": {"type": "string", "format": "date-time"},
        "tags": {"type": "array", "items": {"type": "string", "x-kubernetes-validations": [not_empty]}},
        "limits": {"type": "object", "additionalProperties": {"type": "integer"}},
    }
    late, positive = (
        "self.until > timestamp('2026-01-01T00:00:00Z')",
        "self.limits.all(k, self.limits[k] > 0)",
    )
    rule = {"rule": f"{late} && {positive} && self.tags.exists(tag, tag == 'a')"}
    good = {"until": "2026-02-01T00:00:00Z", "tags": ["a"], "limits": {"a": 1}}
    assert broken(good, rule, **values) == []
    assert len(broken({**good, "limits": {"a": 0}}, rule, **values)) == 1
    assert broken({**good, "tags": ["a", ""]}, rule, **values) == [
        "spec.tags[1]: Invalid value: \"string\": failed rule: self != ''"
    ]
    assert "format" in broken({**good, "until": "soon"}, rule, **values)[0]


def test_rules_have_a_cost_budget() -> None:
    numbers = {"many": {"type": "array", "items": {"type": "integer"}}}
    rule = {"rule": "self.many.all(a, self.many.all(b, self.many.all(c, a + b + c >= 0)))"}
    (problem,) = broken({"many": list(range(500))}, rule, **numbers)
    assert "cost exceeds limit" in problem


@pytest.mark.parametrize("rule", ["self.size >", "self.colour == 1", "self.size", "", "x > 1"])
def test_a_definition_whose_rule_cannot_be_compiled(rule: str) -> None:
    (problem,) = schema_problems(with_rules({"rule": rule}), "schema")
    assert problem.field == "schema.properties[spec].x-kubernetes-validations[0].rule"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (
            {"additionalPrinterColumns": [{"name": "x", "type": "string"}]},
            "additionalPrinterColumns[0].jsonPath",
        ),
        ({"additionalPrinterColumns": [{"jsonPath": ".x", "type": "x"}]}, "additionalPrinterColumns[0].name"),
        ({"selectableFields": [{}]}, "selectableFields[0].jsonPath"),
        ({"subresources": {"scale": {}}}, "subresources.scale.specReplicasPath"),
        ({"name": "v1/../x"}, "name"),
        (
            {"schema": {"openAPIV3Schema": {"type": "object", "required": [[]]}}},
            "schema.openAPIV3Schema.required[0]",
        ),
        ({"schema": {"openAPIV3Schema": {"type": "object", "format": []}}}, "schema.openAPIV3Schema.format"),
        (
            {"schema": {"openAPIV3Schema": {"type": "object", "required": 1}}},
            "schema.openAPIV3Schema.required",
        ),
    ],
)
def test_a_definition_that_would_fail_later_is_rejected(change: dict[str, Any], field: str) -> None:
    """It was accepted, and requests for its objects were answered with 500."""
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA}, **change}
    spec = {"group": "example.com", "scope": "Namespaced", "names": {"plural": "gangs", "kind": "Gang"}}
    definition = {"metadata": {"name": "gangs.example.com"}, "spec": {**spec, "versions": [version]}}
    with pytest.raises(StatusError) as caught:
        open_api().create(CUSTOM_RESOURCE_DEFINITIONS, definition)
    assert f"spec.versions[0].{field}: " in str(caught.value)
