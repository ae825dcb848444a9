"""Policies are read as descheduler reads them, with its errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bayplan.deschedule.policy import parse_policy
from bayplan.errors import DecodeError

PREFIX = """failed decoding descheduler's policy config "p.yaml": """


def policy(name: str, args: Any, **settings: Any) -> str:
    profile = {"name": "p", "pluginConfig": [{"name": name, "args": args}]}
    return json.dumps({"apiVersion": "descheduler/v1alpha2", "profiles": [profile], **settings})


def error_of(text: str) -> str:
    with pytest.raises(DecodeError) as raised:
        parse_policy(text, "p.yaml", {"high": 1000, "huge": 2_000_000_001}.get)
    return raised.value.problem


@pytest.mark.parametrize(
    ("name", "args", "error"),
    [
        (
            "PodLifeTime",
            "text",
            "couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of "
            'type struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string '
            '"json:\\"kind,omitempty\\"" }',
        ),
        ("DefaultEvictor", {"minPodAge": "1 hour"}, 'time: unknown unit " hour" in duration "1 hour"'),
        ("DefaultEvictor", {"minPodAge": "5"}, 'time: missing unit in duration "5"'),
        ("DefaultEvictor", {"minPodAge": "soon"}, 'time: invalid duration "soon"'),
        (
            "DefaultEvictor",
            {"podProtections": {"x": 1}},
            'strict decoding error: unknown field "podProtections.x"',
        ),
        (
            "LowNodeUtilization",
            {"thresholds": []},
            "json: cannot unmarshal array into Go struct field LowNodeUtilizationArgs.thresholds of type "
            "api.ResourceThresholds",
        ),
        (
            "LowNodeUtilization",
            {"thresholds": {"cpu": "x"}},
            "json: cannot unmarshal string into Go struct field LowNodeUtilizationArgs.thresholds of type "
            "api.Percentage",
        ),
        (
            "RemoveDuplicates",
            {"namespaces": "x"},
            "json: cannot unmarshal string into Go struct field RemoveDuplicatesArgs.namespaces of type "
            "api.Namespaces",
        ),
        (
            "DefaultEvictor",
            {"podProtections": {"extraEnabled": [1]}},
            "json: cannot unmarshal number into Go struct field PodProtections.podProtections.extraEnabled "
            "of type defaultevictor.PodProtection",
        ),
        (
            "PodLifeTime",
            {"labelSelector": {"matchExpressions": [{"operator": 1}]}},
            "json: cannot unmarshal number into Go struct field "
            "LabelSelectorRequirement.labelSelector.matchExpressions.operator of type "
            "v1.LabelSelectorOperator",
        ),
        (
            "PodLifeTime",
            {"labelSelector": 1},
            "json: cannot unmarshal number into Go struct field PodLifeTimeArgs.labelSelector of type "
            "v1.LabelSelector",
        ),
        (
            "DefaultEvictor",
            {"nodeFit": 1, "minReplicas": "x", "foo": 1},
            "json: cannot unmarshal number into Go struct field DefaultEvictorArgs.nodeFit of type bool",
        ),
        (
            "DefaultEvictor",
            {"nodeFit": 1, "minPodAge": "\u00b5s"},
            'time: invalid duration "\\xc2\\xb5s"',
        ),
        (
            "RemoveDuplicates",
            {"kind": 1},
            "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field "
            ".kind of type string",
        ),
    ],
)
def test_arguments_are_decoded_strictly(name: str, args: Any, error: str) -> None:
    """The first value of a wrong type is the error. Unknown fields come after it, bad durations before."""
    assert error_of(policy(name, args)) == PREFIX + error


@pytest.mark.parametrize(
    ("head", "error"),
    [
        ({"apiVersion": ""}, 'no kind "X" is registered for the internal version of group "descheduler"'),
        ({"apiVersion": "__internal"}, 'no kind "X" is registered for the internal version of group ""'),
        ({"APIVersion": "v1"}, 'no kind "X" is registered for version "v1"'),
        ({"apiVersion": "a/b/c"}, "unexpected GroupVersion string: a/b/c"),
        (
            {"apiVersion": [1]},
            "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go struct field "
            ".apiVersion of type string",
        ),
    ],
)
def test_other_versions_and_kinds_are_errors(head: Any, error: str) -> None:
    found = error_of(json.dumps({**head, "kind": "X"}))
    assert found.removesuffix(' in scheme "pkg/runtime/scheme.go:111"') == PREFIX + error


@pytest.mark.parametrize(
    ("profiles", "error"),
    [
        (
            [1],
            "json: cannot unmarshal number into Go struct field DeschedulerPolicy.profiles of type "
            "v1alpha2.DeschedulerProfile",
        ),
        (
            [{"pluginConfig": "x"}],
            "json: cannot unmarshal string into Go struct field DeschedulerProfile.profiles.pluginConfig of "
            "type []v1alpha2.PluginConfig",
        ),
        (
            [{"plugins": {"balance": []}}],
            "json: cannot unmarshal array into Go struct field Plugins.profiles.plugins.balance of type "
            "v1alpha2.PluginSet",
        ),
    ],
)
def test_errors_name_go_s_types(profiles: Any, error: str) -> None:
    assert error_of(policy("RemoveDuplicates", {}, profiles=profiles)) == PREFIX + error


@pytest.mark.parametrize(
    ("args", "error"),
    [
        ({"priorityThreshold": {"name": "high", "value": 1}}, "priority threshold misconfigured"),
        ({"noEvictionPolicy": "Never"}, 'noEvictionPolicy accepts only ["Preferred" "Mandatory"] values'),
        (
            {"evictDaemonSetPods": True, "podProtections": {"extraEnabled": ["PodsWithPVC"]}},
            "cannot use Deprecated fields",
        ),
        ({"podProtections": {"defaultDisabled": ["X"]}}, "invalid pod protection policy in DefaultDisabled"),
        ({"priorityThreshold": {"name": "huge"}}, "priority threshold can't be greater than 2000000000"),
    ],
)
def test_the_evictor_s_arguments_are_checked(args: Any, error: str) -> None:
    assert error in error_of(policy("DefaultEvictor", args))


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"metricsProviders": [{"source": "Prometheus", "prometheus": {}}]}, "prometheus URL is required"),
        (
            {"metricsProviders": [{"source": "Prometheus", "prometheus": {"url": ":x"}}]},
            'error parsing prometheus URL: parse ":x": missing protocol scheme',
        ),
    ],
)
def test_providers_of_metrics_are_checked(settings: Any, error: str) -> None:
    assert error in error_of(policy("RemoveDuplicates", {}, **settings))


@pytest.mark.parametrize("text", ["5", "- a", "{", "a: [", "'x'"])
def test_what_is_no_policy_is_an_error(text: str) -> None:
    assert error_of(text).startswith(PREFIX)


def test_an_unknown_plugin_is_an_error() -> None:
    assert error_of(policy("Nope", {})) == "in profile p: plugin Nope in pluginConfig not registered"


def test_a_policy_without_version_is_empty_with_a_warning() -> None:
    found = parse_policy("profiles: [{name: p}]", "p.yaml", lambda _: None)
    assert found.profiles == ()
    assert "descheduler ignores all of it" in found.warnings[0]
    assert parse_policy("", "p.yaml", lambda _: None).warnings == ()


def test_the_priority_of_a_class_is_the_threshold() -> None:
    args = {"priorityThreshold": {"name": "high"}, "minPodAge": "1h"}
    found = parse_policy(policy("DefaultEvictor", args), "p.yaml", {"high": 1000}.get)
    wire = found.to_wire()["profiles"][0]["pluginConfig"][0]["args"]
    assert wire["priorityThreshold"] == {"value": 1000, "name": ""}
    assert wire["minPodAge"] == "1h0m0s"
