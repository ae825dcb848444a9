"""TaintToleration: hard taints keep pods away, soft ones make nodes less attractive."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayplan.plugin import Action, Resource, Taint, Toleration
from bayplan.plugin.objects import tolerates
from bayplan.plugins.taint_toleration import REASON, TaintToleration
from bayplan.testing.builders import make_node, make_pod, make_toleration
from bayplan.testing.calling import make_plugin
from tests.effort import examples

from .evaluating import UNRESOLVABLE, Evaluation, make_cluster, points, registrations, requeues

NODE_CHANGE = (Resource.NODE, Action.UPDATE_NODE_TAINT)


def test_its_points_are_upstreams() -> None:
    """PreFilter since v1.37."""
    assert points(TaintToleration) == {"PreFilter", "Filter", "PreScore", "Score", "NormalizeScore"}


@pytest.mark.parametrize(
    ("taints", "tolerations", "fits"),
    [
        pytest.param([], [], True, id="no taints"),
        pytest.param(["gpu=yes:NoSchedule"], [], False, id="a taint that is not tolerated"),
        pytest.param(["gpu=yes:NoExecute"], [], False, id="NoExecute keeps away too"),
        pytest.param(["gpu=yes:PreferNoSchedule"], [], True, id="PreferNoSchedule does not"),
        pytest.param(["gpu=yes:NoSchedule"], [make_toleration("gpu", "yes")], True, id="key and value equal"),
        pytest.param(["gpu=yes:NoSchedule"], [make_toleration("gpu", "no")], False, id="another value"),
        pytest.param(["gpu=yes:NoSchedule"], [make_toleration("gpu")], True, id="any value of the key"),
        pytest.param(["gpu=yes:NoSchedule"], [make_toleration()], True, id="everything is tolerated"),
        pytest.param(
            ["gpu=yes:NoSchedule"],
            [make_toleration("gpu", effect="NoExecute")],
            False,
            id="another effect is tolerated",
        ),
        pytest.param(
            ["gpu=yes:NoSchedule", "old:NoExecute"],
            [make_toleration("gpu")],
            False,
            id="one of two taints is tolerated",
        ),
        pytest.param(
            ["gpu=yes:NoSchedule"],
            [Toleration(operator="Equal", value="yes")],
            True,
            id="without a key only the value is compared",
        ),
        pytest.param(
            ["gpu=5:NoSchedule"],
            [Toleration(key="gpu", operator="Gt", value="1")],
            False,
            id="comparing operators are behind a gate that is off",
        ),
    ],
)
def test_filter(taints: list[str], tolerations: list[Toleration], fits: bool) -> None:
    cluster = make_cluster([make_node("n", taints=taints)])
    evaluation = Evaluation(make_plugin(TaintToleration), make_pod(tolerations=tolerations), cluster)
    assert evaluation.rejected() == ({} if fits else {"n": (UNRESOLVABLE, (REASON,))})


def test_a_list_of_taints_that_comes_later_is_evaluated_too() -> None:
    """The results cached for a template grow with the lists of taints."""
    cluster = make_cluster([make_node("a")])
    evaluation = Evaluation(make_plugin(TaintToleration), make_pod(), cluster)
    before = evaluation.rejected()
    cluster.set_node(make_node("b", taints=["new:NoSchedule"]))
    assert (before, evaluation.rejected()) == ({}, {"b": (UNRESOLVABLE, (REASON,))})


@pytest.mark.parametrize(
    ("tolerations", "scores", "normalized"),
    [
        pytest.param([], [0, 1, 2], [100, 50, 0], id="every taint counts"),
        pytest.param([make_toleration("a")], [0, 0, 1], [100, 100, 0], id="tolerated taints do not"),
        pytest.param([make_toleration()], [0, 0, 0], [100, 100, 100], id="all are tolerated"),
        pytest.param(
            [make_toleration("a", effect="PreferNoSchedule")],
            [0, 0, 1],
            [100, 100, 0],
            id="tolerated by its effect",
        ),
        pytest.param(
            [make_toleration("a", effect="NoSchedule")],
            [0, 1, 2],
            [100, 50, 0],
            id="tolerations of other effects do not help",
        ),
    ],
)
def test_score(tolerations: list[Toleration], scores: list[int], normalized: list[int]) -> None:
    soft = ["a:PreferNoSchedule", "b:PreferNoSchedule"]
    cluster = make_cluster(
        [
            make_node("none", taints=["hard:NoSchedule"]),
            make_node("one", taints=soft[:1]),
            make_node("two", taints=soft),
        ]
    )
    evaluation = Evaluation(make_plugin(TaintToleration), make_pod(tolerations=tolerations), cluster)
    assert (evaluation.pre_score, evaluation.scores(), evaluation.normalized()) == (None, scores, normalized)


keys, values = st.sampled_from(["a", "b"]), st.sampled_from(["", "1"])
effects = st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"])
taint_lists = st.lists(st.builds(Taint, key=keys, value=values, effect=effects), max_size=3)
toleration_lists = st.lists(
    st.builds(
        Toleration,
        key=st.sampled_from(["", "a", "b"]),
        operator=st.sampled_from(["", "Equal", "Exists", "Gt"]),
        value=values,
        effect=st.sampled_from(["", "NoSchedule", "PreferNoSchedule", "NoExecute"]),
    ),
    max_size=2,
)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(taint_lists, min_size=1, max_size=4), toleration_lists)
def test_columns_agree_with_a_plain_rule(on_nodes: list[list[Taint]], tolerations: list[Toleration]) -> None:
    cluster = make_cluster(make_node(f"n{i}", taints=taints) for i, taints in enumerate(on_nodes))
    evaluation = Evaluation(make_plugin(TaintToleration), make_pod(tolerations=tolerations), cluster)

    def hated(taints: list[Taint], effects: tuple[str, ...], by: list[Toleration]) -> int:
        return sum(taint.effect in effects and not any(tolerates(t, taint) for t in by) for taint in taints)

    soft = [t for t in tolerations if t.effect in ("", "PreferNoSchedule")]
    passing = [status is None for status in evaluation.statuses()]
    assert passing == [not hated(taints, ("NoSchedule", "NoExecute"), tolerations) for taints in on_nodes]
    assert evaluation.scores() == [hated(taints, ("PreferNoSchedule",), soft) for taints in on_nodes]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(None, [], True, id="a node without taints was added"),
        pytest.param(None, ["a:NoSchedule"], True, id="a node was added whose taint is tolerated"),
        pytest.param(None, ["b:NoSchedule"], False, id="a node was added with a taint that is not tolerated"),
        pytest.param(
            ["b:NoSchedule"], ["a:NoSchedule"], True, id="the taint that was not tolerated is removed"
        ),
        pytest.param(["a:NoSchedule"], [], False, id="a taint that was tolerated is removed"),
        pytest.param(["b:NoSchedule"], ["b:NoExecute"], False, id="the new taint is no better"),
        pytest.param(["b:NoSchedule"], ["b:PreferNoSchedule"], True, id="the taint became a soft one"),
    ],
)
def test_hint_on_nodes(old: list[str] | None, new: list[str], expected: bool) -> None:
    pod = make_pod(tolerations=[make_toleration("a")])
    before = None if old is None else make_node("n", taints=old)
    event = (Resource.NODE, Action.ADD) if old is None else NODE_CHANGE
    assert requeues(make_plugin(TaintToleration), event, pod, before, make_node("n", taints=new)) is expected


@pytest.mark.parametrize(
    ("changed", "expected"),
    [pytest.param("p", True, id="itself"), pytest.param("other", False, id="another pod")],
)
def test_hint_on_pods(changed: str, expected: bool) -> None:
    event = (Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION)
    new = make_pod(changed, tolerations=[make_toleration("x")])
    assert requeues(make_plugin(TaintToleration), event, make_pod("p"), make_pod(changed), new) is expected


def test_registrations() -> None:
    assert registrations(make_plugin(TaintToleration)) == [
        (Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT),
        (Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION),
    ]
