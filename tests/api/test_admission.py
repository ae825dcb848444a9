"""What happens to an object when it is created, and only then."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from bayplan.api.defaults import with_defaults
from bayplan.api.devices import DeviceClass, ResourceClaim, ResourceSlice
from bayplan.api.meta import LabelSelector, LabelSelectorRequirement, Object, ObjectMeta
from bayplan.api.node import Node
from bayplan.api.pod import Affinity, Pod, PodAffinityTerm, PodSpec, Toleration
from bayplan.api.storage import PersistentVolumeClaim, PersistentVolumeClaimSpec, StorageClass
from bayplan.api.workloads import LimitRange, RuntimeClass
from bayplan.errors import InputError
from bayplan.testing.builders import (
    make_expression,
    make_pod,
    make_pod_affinity,
    make_pod_term,
    make_priority_class,
    make_selector,
    make_spread,
)

NOT_READY = Toleration(
    key="node.kubernetes.io/not-ready", operator="Exists", effect="NoExecute", toleration_seconds=300
)
UNREACHABLE = Toleration(
    key="node.kubernetes.io/unreachable", operator="Exists", effect="NoExecute", toleration_seconds=300
)
LOW = make_priority_class("low", -5, global_default=True)
HIGH = make_priority_class("high", 1000, preemption_policy="Never")
OTHER_DEFAULT = make_priority_class("other", 7, global_default=True)


def new(obj: Object) -> Object:
    """The object as a file has it: never been in a server."""
    return replace(obj, metadata=replace(obj.metadata, uid=""))


def admitted(pod: Pod, *others: Object) -> Pod:
    result = with_defaults([new(pod), *others])[0]
    assert isinstance(result, Pod)
    return result


SANDBOX = RuntimeClass(
    metadata=ObjectMeta(name="sandbox"),
    overhead={"podFixed": {"cpu": "250m"}},
    scheduling={"nodeSelector": {"runtime": "sandbox"}, "tolerations": [{"key": "sandbox"}]},
)
LIMITS = LimitRange(
    metadata=ObjectMeta(name="limits", namespace="default"),
    spec={"limits": [{"type": "Container", "defaultRequest": {"cpu": "2"}, "default": {"memory": "1Gi"}}]},
)


@pytest.mark.parametrize(
    ("pod", "others", "expected"),
    [
        pytest.param(
            make_pod(runtime_class_name="sandbox"),
            [SANDBOX],
            ({"cpu": "250m"}, {"runtime": "sandbox"}, True),
            id="of its class",
        ),
        pytest.param(make_pod(), [SANDBOX], ({}, None, False), id="none without a class"),
        pytest.param(
            make_pod(runtime_class_name="sandbox"), [], ({}, None, False), id="none if the file lacks it"
        ),
    ],
)
def test_overhead_selector_and_tolerations(
    pod: Pod, others: list[Object], expected: tuple[object, ...]
) -> None:
    spec = admitted(pod, *others).spec
    tolerated = any(one.key == "sandbox" for one in spec.tolerations)
    assert (spec.overhead, spec.node_selector, tolerated) == expected


def test_a_pod_that_contradicts_its_runtime_class_is_an_error() -> None:
    pod = make_pod(runtime_class_name="sandbox", node_selector={"runtime": "other"})
    with pytest.raises(InputError, match=r"conflict: runtimeClass\.scheduling\.nodeSelector"):
        admitted(pod, SANDBOX)


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(make_pod(), ("2", "1Gi"), id="what is missing"),
        pytest.param(make_pod(cpu="100m"), ("100m", "1Gi"), id="not what is stated"),
        pytest.param(make_pod(limits={"cpu": "3"}), ("3", "1Gi"), id="a limit is a request before"),
        pytest.param(make_pod(namespace="shop"), (None, None), id="not in another namespace"),
    ],
)
def test_default_requests_of_the_namespace(pod: Pod, expected: tuple[str | None, str | None]) -> None:
    (container,) = admitted(pod, with_defaults([LIMITS])[0]).spec.containers
    resources = container.resources
    assert (resources.requests.get("cpu"), resources.requests.get("memory")) == expected


def test_a_pod_that_was_in_a_server_is_not_admitted_again() -> None:
    pod = replace(make_pod(runtime_class_name="sandbox"), metadata=ObjectMeta(name="p", resource_version="1"))
    (found, *_) = with_defaults([pod, SANDBOX, LIMITS])
    assert isinstance(found, Pod)
    assert (found.spec.overhead, found.spec.containers[0].resources.requests) == ({}, {})


def test_names_namespaces_and_uids_follow_from_what_is_written() -> None:
    objects: list[Object] = [
        Pod(metadata=ObjectMeta(name="web")),
        Pod(metadata=ObjectMeta(name="web", namespace="shop")),
        Node(metadata=ObjectMeta(name="web")),
    ]
    first, second = with_defaults(objects), with_defaults(objects)
    assert [obj.key for obj in first] == ["default/web", "shop/web", "web"]
    assert len({obj.uid for obj in first} - {""}) == 3
    assert first == second


def test_generated_names_are_counted_and_do_not_collide() -> None:
    objects = with_defaults(
        [
            Pod(metadata=ObjectMeta(generate_name="web-")),
            Pod(metadata=ObjectMeta(name="web-00002", namespace="default")),
            Pod(metadata=ObjectMeta(generate_name="web-")),
            Pod(metadata=ObjectMeta(generate_name="web-", namespace="shop")),
        ]
    )
    assert [obj.key for obj in objects] == [
        "default/web-00001",
        "default/web-00002",
        "default/web-00003",
        "shop/web-00001",
    ]
    assert len({obj.uid for obj in objects}) == 4


@pytest.mark.parametrize(
    ("pod", "others", "expected"),
    [
        pytest.param(make_pod(), [], (0, "", "PreemptLowerPriority"), id="no classes: zero"),
        pytest.param(make_pod(), [HIGH, LOW], (-5, "low", "PreemptLowerPriority"), id="the default class"),
        pytest.param(
            make_pod(),
            [OTHER_DEFAULT, LOW],
            (-5, "low", "PreemptLowerPriority"),
            id="of two defaults the lower",
        ),
        pytest.param(
            make_pod(priority_class_name="high"), [HIGH, LOW], (1000, "high", "Never"), id="its class"
        ),
        pytest.param(
            make_pod(priority_class_name="high", preemption_policy="PreemptLowerPriority"),
            [HIGH],
            (1000, "high", "PreemptLowerPriority"),
            id="its own preemption policy",
        ),
        pytest.param(
            make_pod(priority_class_name="system-cluster-critical"),
            [],
            (2_000_000_000, "system-cluster-critical", "PreemptLowerPriority"),
            id="critical for the cluster",
        ),
        pytest.param(
            make_pod(priority_class_name="system-node-critical"),
            [LOW],
            (2_000_001_000, "system-node-critical", "PreemptLowerPriority"),
            id="critical for its node",
        ),
        pytest.param(
            make_pod(priority=3), [LOW], (3, "", "PreemptLowerPriority"), id="a priority in the file"
        ),
        pytest.param(
            make_pod(priority=3, priority_class_name="gone"),
            [],
            (3, "gone", "PreemptLowerPriority"),
            id="which needs no class",
        ),
    ],
)
def test_priority(pod: Pod, others: list[Object], expected: tuple[int, str, str]) -> None:
    spec = admitted(pod, *others).spec
    assert (spec.priority, spec.priority_class_name, spec.preemption_policy) == expected


def test_an_unknown_priority_class_is_an_error() -> None:
    with pytest.raises(InputError) as caught:
        admitted(make_pod("web", priority_class_name="urgent"))
    assert str(caught.value) == (
        "Pod default/web: spec.priorityClassName: no PriorityClass with name urgent was found"
    )


@pytest.mark.parametrize(
    ("given", "added"),
    [
        pytest.param((), (NOT_READY, UNREACHABLE), id="both, by default"),
        pytest.param(
            (Toleration(key="gpu", operator="Exists"),), (NOT_READY, UNREACHABLE), id="beside others"
        ),
        pytest.param((Toleration(operator="Exists"),), (), id="not where all is tolerated"),
        pytest.param(
            (Toleration(operator="Exists", effect="NoSchedule"),),
            (NOT_READY, UNREACHABLE),
            id="tolerating all that keeps away is not enough",
        ),
        pytest.param(
            (Toleration(key="node.kubernetes.io/not-ready", operator="Exists"),),
            (UNREACHABLE,),
            id="what is lacking",
        ),
        pytest.param(
            (Toleration(key="node.kubernetes.io/unreachable", effect="NoSchedule"),),
            (NOT_READY, UNREACHABLE),
            id="another effect does not count",
        ),
    ],
)
def test_tolerations_of_absent_nodes(given: tuple[Toleration, ...], added: tuple[Toleration, ...]) -> None:
    assert admitted(make_pod(tolerations=given)).spec.tolerations == (*given, *added)


def test_a_new_pod_is_pending() -> None:
    assert admitted(Pod(metadata=ObjectMeta(name="p"))).status.phase == "Pending"
    assert admitted(make_pod(phase="Failed")).status.phase == "Failed"


REV = LabelSelectorRequirement(key="rev", operator="In", values=("7",))
NOT_TEAM = LabelSelectorRequirement(key="team", operator="NotIn", values=("red",))


@pytest.mark.parametrize(
    ("selector", "merged"),
    [
        pytest.param(None, None, id="an absent selector stays absent"),
        pytest.param(make_selector(), make_selector(None, REV), id="an empty selector is narrowed"),
        pytest.param(
            make_selector({"app": "web"}, make_expression("x", "Exists")),
            make_selector({"app": "web"}, make_expression("x", "Exists"), REV),
            id="others are too",
        ),
    ],
)
def test_spread_constraints_take_up_label_keys(
    selector: LabelSelector | None, merged: LabelSelector | None
) -> None:
    """Keys that the pod does not carry are ignored."""
    constraint = make_spread("zone", selector, match_label_keys=["rev", "absent"])
    (result,) = admitted(make_pod(labels={"rev": "7"}, spread=[constraint])).spec.topology_spread_constraints
    assert result == replace(constraint, label_selector=merged)


def terms_of(affinity: Affinity | None) -> list[PodAffinityTerm]:
    assert affinity is not None
    halves = [half for half in (affinity.pod_affinity, affinity.pod_anti_affinity) if half is not None]
    preferred = [weighted.pod_affinity_term for half in halves for weighted in half.preferred]
    return [*(term for half in halves for term in half.required), *preferred]


def test_affinity_terms_take_up_label_keys() -> None:
    term = replace(
        make_pod_term("zone", {"app": "web"}),
        match_label_keys=("rev", "absent"),
        mismatch_label_keys=("team",),
    )
    affinity = make_pod_affinity(
        required=[term], preferred=[(1, term)], anti_required=[term], anti_preferred=[(1, term)]
    )
    pod = admitted(make_pod(labels={"rev": "7", "team": "red"}, affinity=affinity))
    expected = replace(term, label_selector=make_selector({"app": "web"}, REV, NOT_TEAM))
    assert terms_of(pod.spec.affinity) == [expected] * 4


def storage_class(name: str, *, default: bool = True, day: int | None = None) -> StorageClass:
    created = None if day is None else datetime(2026, 1, day, tzinfo=UTC)
    annotations = {"storageclass.kubernetes.io/is-default-class": "true" if default else "false"}
    return StorageClass(metadata=ObjectMeta(name=name, annotations=annotations, creation_timestamp=created))


@pytest.mark.parametrize(
    ("given", "classes", "expected"),
    [
        pytest.param(None, [], None, id="no classes"),
        pytest.param(None, [storage_class("a", default=False)], None, id="no default class"),
        pytest.param(
            None, [storage_class("b"), storage_class("a", default=False)], "b", id="the default class"
        ),
        pytest.param(
            None, [storage_class("a", day=1), storage_class("b", day=2)], "b", id="of two the newer"
        ),
        pytest.param(
            None, [storage_class("b"), storage_class("a")], "a", id="of two of one age the first by name"
        ),
        pytest.param("mine", [storage_class("a")], "mine", id="its own class"),
        pytest.param("", [storage_class("a")], "", id="explicitly none"),
    ],
)
def test_storage_class_of_a_claim(given: str | None, classes: list[Object], expected: str | None) -> None:
    claim = PersistentVolumeClaim(
        metadata=ObjectMeta(name="c"), spec=PersistentVolumeClaimSpec(storage_class_name=given)
    )
    result = with_defaults([claim, *classes])[0]
    assert isinstance(result, PersistentVolumeClaim)
    assert result.spec.storage_class_name == expected


@pytest.mark.parametrize(
    "metadata",
    [ObjectMeta(name="p", namespace="x", uid="1"), ObjectMeta(name="p", namespace="x", resource_version="5")],
    ids=["it has a uid", "it has a version"],
)
def test_what_has_been_in_a_server_is_not_admitted_again(metadata: ObjectMeta) -> None:
    pod = Pod(
        metadata=metadata,
        spec=PodSpec(
            priority_class_name="gone",
            topology_spread_constraints=(make_spread("zone", {}, match_label_keys=["rev"]),),
        ),
    )
    (result,) = with_defaults([pod])
    assert isinstance(result, Pod)
    assert result.spec.priority is None
    assert result.spec.tolerations == ()
    assert result.spec.topology_spread_constraints == pod.spec.topology_spread_constraints
    assert result.uid


def test_kinds_without_a_namespace_get_none() -> None:
    """A DeviceClass in a namespace would not be found by the claims that name it."""
    kinds = (DeviceClass, ResourceSlice, ResourceClaim)
    objects = with_defaults([kind(metadata=ObjectMeta(name="x")) for kind in kinds])
    assert [obj.key for obj in objects] == ["x", "x", "default/x"]
