"""Which pods are identical to plugins that declare what they read."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.api.pod import ContainerPort, EphemeralVolumeSource, Volume
from bayplan.state.pods import NOT_IN_TEMPLATE, POD_FIELDS, PodSigner, pod_signature
from bayplan.testing.builders import (
    make_container,
    make_expression,
    make_node_affinity,
    make_node_term,
    make_owner,
    make_pod,
    make_pod_affinity,
    make_pod_term,
    make_spread,
    make_toleration,
)

CHANGES: dict[str, tuple[dict[str, Any], str | None]] = {
    "another name": ({"name": "q"}, "name"),
    "another namespace": ({"namespace": "other"}, "namespace"),
    "labels": ({"labels": {"a": "b"}}, "labels"),
    "annotations": ({"annotations": {"a": "b"}}, "annotations"),
    "priority": ({"priority": 7}, "priority"),
    "a node": ({"node": "n"}, "node_name"),
    "a node selector": ({"node_selector": {"a": "b"}}, "node_selector"),
    "node affinity": (
        {"affinity": make_node_affinity(make_node_term(make_expression("a", "Exists")))},
        "node_affinity",
    ),
    "tolerations": ({"tolerations": [make_toleration("a")]}, "tolerations"),
    "requests": ({"cpu": 1}, "resources"),
    "overhead": ({"overhead": {"cpu": "1"}}, "resources"),
    "a host port": ({"host_ports": [80]}, "ports"),
    "an image": ({"image": "nginx"}, "images"),
    "a claim": ({"claims": ["data"]}, "volumes"),
    "the host's network": ({"host_network": True}, "host"),
    "an owner": ({"owner": make_owner("ReplicaSet", "rs")}, "owner"),
    "pod affinity": ({"affinity": make_pod_affinity(required=[make_pod_term("zone", {"a": "b"})])}, None),
    "spreading": ({"spread": [make_spread("zone", {"a": "b"})]}, None),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_field_changes_with_what_it_covers(change: str) -> None:
    """A pod that differs in one thing differs in the field that covers it, and in no other."""
    fields, seen_by = CHANGES[change]
    plain, other = make_pod("p"), make_pod(**{"name": "p", **fields})
    differing = {name for name, of in POD_FIELDS.items() if of(plain) != of(other)}
    expected = {"another namespace": {"name", "namespace"}, "a claim": {"volumes"}}.get(
        change, set() if seen_by is None else {seen_by}
    )
    assert differing == expected


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_template_leaves_out_is_known(change: str) -> None:
    """Pods of one template differ in no field but those that are listed as such."""
    fields, seen_by = CHANGES[change]
    same_signature = pod_signature(make_pod("p")) == pod_signature(make_pod(**{"name": "p", **fields}))
    assert same_signature is (seen_by in NOT_IN_TEMPLATE)


def test_signatures_follow_the_declared_fields_alone() -> None:
    signature = PodSigner(["labels", "resources"])
    assert signature(make_pod("a", cpu=1, image="x")) == signature(make_pod("b", cpu=1, priority=9))
    assert signature(make_pod("a", cpu=1)) != signature(make_pod("a", cpu=2))


def test_the_order_of_labels_does_not_matter() -> None:
    signature = PodSigner(["labels"])
    one, other = make_pod(labels={"a": "1", "b": "2"}), make_pod(labels={"b": "2", "a": "1"})
    assert signature(one) == signature(other)


@pytest.mark.parametrize(
    ("fields", "per_pod"),
    [(["labels"], False), (["node_name"], False), (["annotations"], True), (["name", "labels"], True)],
)
def test_whether_pods_of_one_template_may_differ(fields: list[str], per_pod: bool) -> None:
    """The node that a pod names is evaluated separately, because it is rarely set."""
    assert PodSigner(fields).per_pod is per_pod


def test_a_field_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match=r"unknown pod fields \['colour'\]; known are \['annotations', "):
        PodSigner(["labels", "colour"])


class TestVolumes:
    """Volumes that scheduling does not read (config maps, tokens with random names) make no difference."""

    def test_volumes_of_no_interest(self) -> None:
        plain = make_pod(claims=["data"])
        noisy = make_pod(claims=["data"], volumes=[Volume(name="kube-api-access-7xk2p")])
        assert pod_signature(plain) == pod_signature(noisy)
        assert POD_FIELDS["volumes"](plain) == POD_FIELDS["volumes"](noisy)

    def test_ephemeral_volumes_depend_on_the_pods_name(self) -> None:
        volume = Volume(name="scratch", ephemeral=EphemeralVolumeSource())
        one, other = make_pod("a", volumes=[volume]), make_pod("b", volumes=[volume])
        assert pod_signature(one) != pod_signature(other)
        assert POD_FIELDS["volumes"](one) != POD_FIELDS["volumes"](other)


def test_ports_of_containers_that_do_not_stay() -> None:
    """A plain init container does not count, but whether it stays is part of the signature."""
    port = ContainerPort(container_port=80, host_port=80)
    plain = make_pod(init_containers=[make_container("init", host_ports=[port])])
    sidecar = make_pod(init_containers=[make_container("init", host_ports=[port], sidecar=True)])
    assert POD_FIELDS["ports"](plain) != POD_FIELDS["ports"](sidecar)
