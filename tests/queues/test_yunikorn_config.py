"""Texts of YuniKorn about a configuration, and the tree that a valid one makes."""

from __future__ import annotations

import pytest

from bayplan.queues.tree import Order, Preemption, Queue, State
from bayplan.queues.yunikorn.build import Partition
from bayplan.queues.yunikorn.checks import load
from bayplan.queues.yunikorn.config import DEFAULT_CONFIG, QueueConfigError, parse_quantity
from bayplan.queues.yunikorn.placement import PlacementError, Submission


def queues(body: str, partition: str = "") -> str:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return f"partitions:\n- name: default\n{partition}  queues:\n  - name: root\n{lines}\n"


def child(body: str) -> str:
    return queues(
        "submitacl: '*'\nqueues:\n- name: a\n" + "\n".join(f"  {line}" for line in body.split("\n"))
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("partitions:\n- name: x\n", "queue config is not set", id="no queues"),
        pytest.param(
            queues("resources: {max: {}}"), "root queue must not have resource limits set", id="root with max"
        ),
        pytest.param(
            queues("limits: [{users: [a], maxapplications: 1}]", "  limits: [{users: [b]}]\n"),
            "partition limits and root queue limits are not equivalent",
            id="limits of partition and root",
        ),
        pytest.param(
            child("weight: 2"),
            "yaml: unmarshal errors:\n  line 8: field weight not found in type configs.QueueConfig",
            id="unknown field",
        ),
        pytest.param(
            child("parent: maybe"),
            "yaml: unmarshal errors:\n  line 8: cannot unmarshal !!str `maybe` into bool",
            id="not a bool",
        ),
        pytest.param(
            child("maxapplications: -1"),
            "yaml: unmarshal errors:\n  line 8: cannot unmarshal !!int `-1` into uint64",
            id="a negative count",
        ),
        pytest.param(
            child("limits: {a: b}"),
            "yaml: unmarshal errors:\n  line 8: cannot unmarshal !!map into []configs.Limit",
            id="not a list",
        ),
        pytest.param(
            child("resources: {guaranteed: {vcore: 2}, max: {vcore: 1}}"),
            "guaranteed resource map[vcore:2000] is larger than maximum resource map[vcore:1000] for queue a",
            id="guaranteed above max",
        ),
        pytest.param(
            child(
                "resources: {guaranteed: {vcore: 1}}\n"
                "queues: [{name: b, resources: {guaranteed: {vcore: 2}}}]"
            ),
            "guaranteed resource of parent map[vcore:1000] is smaller than sum of guaranteed resources "
            "map[vcore:2000] of the children for queue a",
            id="guaranteed below children",
        ),
        pytest.param(
            child("resources: {max: {vcore: 1}}\nqueues: [{name: b, resources: {guaranteed: {vcore: 2}}}]"),
            "max resource map[vcore:1000] is smaller than sum of guaranteed resources map[vcore:2000] "
            "of the children for queue a",
            id="max below guaranteed of children",
        ),
        pytest.param(
            child("limits: [{limit: l, users: ['1a'], maxapplications: 1}]"),
            "invalid limit user name '1a' in limit definition",
            id="user name",
        ),
        pytest.param(
            child("limits: [{limit: l, users: [a, a], maxapplications: 1}]"),
            "duplicated user name 'a', already exists",
            id="user twice",
        ),
        pytest.param(
            child("limits: [{limit: l, users: ['*', a], maxapplications: 1}]"),
            "should not set no wildcard user a after wildcard user limit",
            id="user after everybody",
        ),
        pytest.param(
            child("limits: [{limit: l, groups: ['1a'], maxapplications: 1}]"),
            "invalid limit group name '1a' in limit definition",
            id="group name",
        ),
        pytest.param(
            child("limits: [{limit: l, groups: ['*'], maxapplications: 1}]"),
            "should not specify only one group limit that is using the wildcard. "
            "There must be at least one limit with a group name defined ",
            id="only the wildcard group",
        ),
        pytest.param(
            child("limits: [{limit: l, users: [a], maxresources: {vcore: 0}}]"),
            "MaxResources should be greater than zero in 'l' limit",
            id="a limit of zero",
        ),
        pytest.param(
            child("limits: [{limit: l, users: [a]}]"),
            "invalid resource combination for limit l all resource limits are null",
            id="a limit without limits",
        ),
        pytest.param(
            child("resources: {max: {vcore: 1}}\nlimits: [{limit: l, users: [a], maxresources: {vcore: 2}}]"),
            "invalid MaxResources settings for limit l exeecd current the queue MaxResources",
            id="a limit above max",
        ),
        pytest.param(
            child("resources: {max: {vcore: x}}\nlimits: [{limit: l, users: [a], maxresources: {vcore: 2}}]"),
            "parse queue a max resource failed: invalid quantity",
            id="a limit with an invalid max",
        ),
        pytest.param(
            child(
                "limits: [{limit: l, users: [a], maxresources: {vcore: 1}}]\n"
                "queues: [{name: b, limits: [{limit: l, users: [a], maxresources: {vcore: 2}}]}]"
            ),
            "user a max resource map[vcore:2000] of queue b is greater than "
            "immediate or ancestor parent maximum resource map[vcore:1000]",
            id="a limit above that of the parent",
        ),
        pytest.param(
            queues("maxapplications: 1\nqueues: [{name: a, maxapplications: 2}]"),
            "parent maxApplications must be larger than child maxApplications",
            id="more applications than the parent",
        ),
        pytest.param(
            queues("", "  nodesortpolicy: {type: x}\n"), "undefined policy: x", id="node sort policy"
        ),
    ],
)
def test_problems(text: str, problem: str) -> None:
    with pytest.raises(QueueConfigError) as caught:
        load(text)
    assert caught.value.problem == problem


@pytest.mark.parametrize(
    ("text", "milli", "amount"),
    [
        ("500m", True, 500),
        ("2", True, 2000),
        (" 3 Ki ", False, 3072),
        ("1E", False, 10**18),
        ("m", True, "invalid quantity"),
        ("1.5", False, "invalid quantity"),
        ("1m", False, "invalid suffix"),
        ("1K", False, "invalid suffix"),
        ("9E", True, "invalid quantity: overflow"),
        ("99999999999999999999", False, "invalid quantity: overflow"),
    ],
)
def test_quantities(text: str, milli: bool, amount: int | str) -> None:
    result: int | str
    try:
        result = parse_quantity(text, milli=milli)
    except QueueConfigError as error:
        result = error.problem
    assert result == amount


def partition_of(text: str) -> Partition:
    return Partition(load(text).partitions[0])


def test_properties_are_inherited_by_rule() -> None:
    """Order is inherited, offsets and fences are not, and only a disabled preemption is."""
    text = child(
        "properties:\n"
        "  application.sort.policy: fair\n  priority.offset: '5'\n  preemption.policy: disabled\n"
        "  preemption.delay: 10s\n  application.unschedasks.backoff: '3'\n"
        "queues: [{name: b}, {name: c, properties: {preemption.policy: fence, priority.offset: x}}]"
    )
    root = partition_of(text).root
    a, b, c = (root.find(path) for path in ("root.a", "root.a.b", "root.a.c"))
    assert isinstance(a, Queue)
    assert isinstance(b, Queue)
    assert isinstance(c, Queue)
    assert (a.policy.priority_offset, b.policy.priority_offset, c.policy.priority_offset) == (5, 0, 0)
    assert (b.policy.order, b.policy.preemption_delay, b.policy.backoff_after) == (Order.FAIR, 10.0, 3)
    assert (b.policy.preemption, c.policy.preemption) == (Preemption.DISABLED, Preemption.FENCE)


def test_a_queue_that_disappears_is_drained_and_then_removed() -> None:
    partition = partition_of(queues("queues: [{name: a}, {name: b, queues: [{name: c}]}]"))
    partition.reload(load(queues("queues: [{name: a}]")).partitions[0])
    b = partition.find("root.b")
    assert b is not None
    assert [queue.state for queue in b.downwards()] == [State.DRAINING, State.DRAINING]
    partition.clean()
    assert [queue.path for queue in partition.root.downwards()] == ["root", "root.a"]


def test_a_namespace_gets_a_queue_with_its_quota() -> None:
    """Without a configuration there is a queue for each namespace, with the quota of its annotations."""
    partition = partition_of(DEFAULT_CONFIG)
    quota = '{"resources": {"vcore": {"value": 2000}}}'
    tags = {"namespace": "team.one", "namespace.resourcequota": quota, "namespace.resourcemaxapps": "3"}
    queue = partition.queue_for(Submission("app", tags=tags))
    assert (queue.path, queue.ceiling, queue.max_groups) == ("root.team_dot_one", {"vcore": 2000}, 3)
    again = partition.queue_for(Submission("two", tags={**tags, "namespace.resourcequota": "nonsense"}))
    assert again is queue


TEMPLATE = "childtemplate: {maxapplications: 2, resources: {max: {vcore: 4}}}"


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        pytest.param(
            f"{TEMPLATE}\nqueues: [{{name: p, parent: true}}]",
            "root.p.new",
            (2, {"vcore": 4000}),
            id="a parent without one has that of its parent",
        ),
        pytest.param(
            f"queues:\n- name: p\n  {TEMPLATE}\n  queues: [{{name: q, parent: true}}]",
            "root.p.q.new",
            (2, {"vcore": 4000}),
            id="at any level",
        ),
        pytest.param(
            "queues: [{name: p, parent: true, childtemplate: {resources: {max: {vcore: ''}}}}]",
            "root.p.new",
            (0, None),
            id="empty texts are no template, and no error",
        ),
    ],
)
def test_templates(text: str, path: str, expected: tuple[int, object]) -> None:
    rules = "  placementrules: [{name: provided, create: true}]\n"
    partition = partition_of(queues(f"submitacl: '*'\n{text}", rules))
    queue = partition.queue_for(Submission("x", path))
    assert (queue.path, queue.max_groups, queue.ceiling) == (path, *expected)


def test_queues_with_special_names() -> None:
    """As in YuniKorn, resources of a queue named root are ignored, and @recovery@ has no properties."""
    fair = "properties: {application.sort.policy: fair}"
    root = partition_of(
        queues(
            "queues:\n- {name: Root, maxapplications: 3, resources: {max: {vcore: 1}}}\n"
            f"- {{name: '@recovery@', {fair}}}"
        )
    ).root
    inner, recovery = root.find("root.root"), root.find("root.@recovery@")
    assert inner is not None
    assert recovery is not None
    assert (inner.ceiling, inner.max_groups, recovery.policy.order) == (None, 3, Order.FIFO)


RULES = """  placementrules:
  - name: provided
    create: true
    parent: {name: user, create: true, filter: {type: deny, users: [eve]}}
  - {name: fixed, value: root.leaf}
"""


@pytest.mark.parametrize(
    ("app", "path"),
    [
        pytest.param(Submission("x", "mine", "ann.b"), "root.ann_dot_b.mine", id="below the user"),
        pytest.param(Submission("x", "root.full.path", "ann"), "root.full.path", id="qualified"),
        pytest.param(Submission("x", "mine", "eve"), "root.leaf", id="the filter denies the user"),
        pytest.param(Submission("x", "", "ann"), "root.leaf", id="nothing provided"),
        pytest.param(
            Submission("x", "mine", "leaf"),
            "failed to place application x: parent rule returned a leaf queue: root.leaf",
            id="the parent is a leaf",
        ),
        pytest.param(
            Submission("x", "root.leaf.y", "ann"),
            "failed to create rule based queue root.leaf.y for application x\n"
            "creation of queue root.leaf.y failed parent is already a leaf: root.leaf",
            id="below a leaf",
        ),
    ],
)
def test_placement(app: Submission, path: str) -> None:
    partition = partition_of(queues("submitacl: '*'\nqueues: [{name: leaf}]", RULES))
    try:
        result = partition.queue_for(app).path
    except PlacementError as error:
        result = str(error)
    assert result == path


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ("{name: recovery}", "recovery rule cannot be part of the config, failing placement rule config"),
        ("{name: other}", "unknown rule name specified other, failing placement rule config"),
        ("{name: tag}", "a tag queue rule must have a tag name set"),
        ("{name: fixed, create: true}", "a fixed queue rule must have a queue name set"),
    ],
)
def test_rules_that_cannot_be_built(rule: str, problem: str) -> None:
    """At start they are dropped, and every application is rejected; a reload keeps the old ones."""
    text = queues("submitacl: '*'\nqueues: [{name: default}]", f"  placementrules: [{rule}]\n")
    broken = partition_of(text)
    assert broken.rules_error == problem
    with pytest.raises(PlacementError, match="no placement rule matched"):
        broken.queue_for(Submission("x"))
    good = partition_of(queues("submitacl: '*'\nqueues: [{name: default}]"))
    with pytest.raises(QueueConfigError):
        good.reload(load(text).partitions[0])
    assert good.queue_for(Submission("x")).path == "root.default"
