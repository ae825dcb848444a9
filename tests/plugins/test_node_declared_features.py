"""NodeDeclaredFeatures: pods fit where the kubelet has the features that they use."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayplan.api.pod import ContainerRestartRule
from bayplan.plugin import SKIP, Action, Pod, Resource
from bayplan.plugins.node_declared_features import REASON, NodeDeclaredFeatures, required_features
from bayplan.testing.builders import make_container, make_node, make_pod
from bayplan.testing.calling import make_plugin
from tests.effort import examples

from .evaluating import UNRESOLVABLE, Evaluation, make_cluster, points, registrations, requeues

RESTART = "RestartAllContainersOnContainerExits"
USERS = "UserNamespacesHostNetworkSupport"

NODE_CHANGE = (Resource.NODE, Action.UPDATE_NODE_DECLARED_FEATURE)
POD_CHANGE = (Resource.TARGET_POD, Action.UPDATE)


def restarting(action: str = "RestartAllContainers", *, init: bool = False, **fields: Any) -> Pod:
    """A pod one of whose containers has a restart rule."""
    rules = (ContainerRestartRule(action="Restart"), ContainerRestartRule(action=action))
    container = msgspec.structs.replace(make_container(), restart_policy_rules=rules)
    if init:
        return make_pod(init_containers=[container], **fields)
    return make_pod(containers=[container], **fields)


def test_its_points_are_upstreams() -> None:
    assert points(NodeDeclaredFeatures) == {"PreFilter", "Filter"}


@pytest.mark.parametrize(
    ("pod", "required"),
    [
        pytest.param(make_pod(), set(), id="an ordinary pod"),
        pytest.param(restarting(), {RESTART}, id="a container restarts all"),
        pytest.param(restarting(init=True), {RESTART}, id="an init container does"),
        pytest.param(restarting("Restart"), set(), id="a container restarts itself"),
        pytest.param(make_pod(host_network=True), set(), id="only the host's network"),
        pytest.param(make_pod(host_users=False), set(), id="only its own users"),
        pytest.param(make_pod(host_network=True, host_users=True), set(), id="the host's users"),
        pytest.param(
            make_pod(host_network=True, host_users=False), {USERS}, id="the host's network, own users"
        ),
        pytest.param(restarting(host_network=True, host_users=False), {RESTART, USERS}, id="everything"),
    ],
)
def test_required_features(pod: Pod, required: set[str]) -> None:
    assert required_features(pod) == required


def test_a_pod_that_needs_nothing_is_skipped() -> None:
    assert (
        Evaluation(make_plugin(NodeDeclaredFeatures), make_pod(), make_cluster([make_node("n")])).pre_filter
        is SKIP
    )


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.sets(st.sampled_from([RESTART, USERS, "Other"])), min_size=1, max_size=4), st.booleans())
def test_all_required_features_must_be_declared(declared: list[set[str]], both: bool) -> None:
    cluster = make_cluster(
        make_node(f"n{i}", declared_features=sorted(own)) for i, own in enumerate(declared)
    )
    pod = restarting(host_network=both, host_users=False)
    required = {RESTART, USERS} if both else {RESTART}
    assert Evaluation(make_plugin(NodeDeclaredFeatures), pod, cluster).rejected() == {
        f"n{i}": (UNRESOLVABLE, (REASON,)) for i, own in enumerate(declared) if not required <= own
    }


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(None, [], True, id="a node was added, whatever it has"),
        pytest.param([], [RESTART], True, id="a feature was added"),
        pytest.param([RESTART], [], True, id="a feature was removed"),
        pytest.param([RESTART], [RESTART], False, id="nothing changed"),
    ],
)
def test_hint_on_nodes(old: list[str] | None, new: list[str], expected: bool) -> None:
    before = None if old is None else make_node("n", declared_features=old)
    event = (Resource.NODE, Action.ADD) if old is None else NODE_CHANGE
    after = make_node("n", declared_features=new)
    assert requeues(make_plugin(NodeDeclaredFeatures), event, restarting(), before, after) is expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(restarting(), make_pod(), True, id="it needs less"),
        pytest.param(restarting(), restarting(labels={"a": "b"}), False, id="it needs the same"),
        pytest.param(restarting(name="x"), make_pod("x"), False, id="another pod needs less"),
    ],
)
def test_hint_on_pods(old: Pod, new: Pod, expected: bool) -> None:
    assert requeues(make_plugin(NodeDeclaredFeatures), POD_CHANGE, restarting(), old, new) is expected


def test_registrations() -> None:
    assert registrations(make_plugin(NodeDeclaredFeatures)) == [
        (Resource.NODE, Action.ADD | Action.UPDATE_NODE_DECLARED_FEATURE),
        POD_CHANGE,
    ]
