"""What is said about a pod in a capacity queue."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.answers.capacity_queues import QueueQuestions
from bayplan.answers.sources.loaded import LoadedCluster
from bayplan.answers.sources.loading import SchedulerSettings, SourceOptions, load_cluster, with_settings
from bayplan.answers.whatif.cluster import Cluster as WhatIfCluster
from bayplan.api.meta import OWN_API_VERSION, Object
from bayplan.api.pod import Pod
from bayplan.config import QueuesConfiguration, default_config
from bayplan.errors import ConfigError
from bayplan.queues.yunikorn.config import DEFAULT_CONFIG
from bayplan.testing.builders import make_node, make_pod
from tests.queues.building import queued_pod, queues_file

QUEUES = """
partitions:
- name: default
  queues:
  - name: root
    submitacl: "*"
    queues:
    - name: a
      resources: {guaranteed: {vcore: 2}, max: {vcore: 4}}
    - name: b
      resources: {guaranteed: {vcore: 1}}
    - name: c
      maxapplications: 1
      properties: {application.sort.policy: fair}
"""
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
CONFIG_MAP = "yunikorn/yunikorn-configs"


def pod(number: int, queue: str, app: str, cpu: int = 1, *, node: str = "", priority: int = 0) -> Pod:
    created = EPOCH + timedelta(seconds=number)
    return queued_pod(f"p{number}", queue, cpu, app, node=node, priority=priority, created=created)


RUNNING = (
    pod(1, "a", "big", 3, node="n"),
    pod(2, "b", "other", 3, node="n"),
    pod(3, "c", "only", node="n"),
)


@pytest.mark.parametrize(
    ("pods", "text"),
    [
        pytest.param(
            [pod(4, "a", "new", 2)],
            [
                "default/p4 waits for quota",
                "  queue root.a, application new, counts for user nobody",
                "  waiting for quota of queue root.a: vcore 3 used, 2 asked, 4 max",
                "  position 1 of 1 in its queue, 1 of 1 in all queues",
                "  uses what it waits for: application big in root.a, vcore 3",
                "  has to be freed first: vcore 1",
                "  has to end first: default/p1 (vcore 3); it is not known when",
                "  preemption would not help: pods of queue root.a are not evicted for its own maximum",
                "Without the limits of queues:",
            ],
            id="above the maximum",
        ),
        pytest.param(
            [pod(4, "c", "second")],
            [
                "default/p4 waits for quota",
                "  queue root.c, application second, counts for user nobody",
                "  waiting for quota of queue root.c: applications 1 used, 1 asked, 1 max",
                "  position 1 of 1 in its queue, 1 of 1 in all queues",
                "  has to be freed first: applications 1",
                "  has to end first: application only; it is not known when",
                "  preemption would not help: pods are not evicted for limits on applications",
                "Without the limits of queues:",
            ],
            id="too many applications",
        ),
        pytest.param(
            [pod(4, "a", "new"), pod(5, "a", "urgent", priority=9), pod(6, "b", "other")],
            [
                "default/p4 has room in its capacity queue",
                "  queue root.a, application new, counts for user nobody",
                "  position 2 of 2 in its queue, 2 of 3 in all queues",
                "  before it: application urgent, priority 9 (this one has 0)",
                "  if no node has room, preemption would not help: queue root.a: vcore 3 used, 1 asked, "
                "2 guaranteed",
                "With room in its queue:",
            ],
            id="behind a higher priority",
        ),
        pytest.param(
            [pod(4, "none", "lost")],
            [
                "default/p4 has no capacity queue: failed to place application lost: "
                "application rejected: no placement rule matched (queue root.none does not exist)",
                "Without the limits of queues:",
            ],
            id="no queue takes it",
        ),
    ],
)
def test_a_pod(tmp_path: Path, pods: list[Pod], text: list[str]) -> None:
    path = queues_file(tmp_path, QUEUES)
    loaded = LoadedCluster("test", (make_node("n", cpu=16), *RUNNING, *pods))
    questions = QueueQuestions(loaded, QueuesConfiguration(file=str(path)))
    assert list(questions.pod(pods[0]).text(pods[0].key)) == text


def test_a_pod_whose_queue_is_entitled_to_its_request(tmp_path: Path) -> None:
    path = queues_file(tmp_path, QUEUES)
    asking = pod(4, "a", "new")
    running = [pod(number, "b", "other", node="n") for number in range(3)]
    loaded = LoadedCluster("test", (make_node("n", cpu=4), *running, asking))
    answer = QueueQuestions(loaded, QueuesConfiguration(file=str(path))).pod(asking)
    assert answer.preemption == (
        "if no node has room, its queue is entitled to this: it may preempt pods of root.b 30 s after its "
        "creation"
    )


def test_victims_below_the_maximum_of_a_parent_are_named(tmp_path: Path) -> None:
    path = queues_file(
        tmp_path,
        """
partitions:
- name: default
  queues:
  - name: root
    submitacl: "*"
    queues:
    - name: p
      resources: {max: {vcore: 4}}
      queues:
      - {name: entitled, resources: {guaranteed: {vcore: 2}}}
      - {name: rich, resources: {guaranteed: {vcore: 1}}}
""",
    )
    running = [pod(number, "p.rich", "r", node="n") for number in range(4)]
    waiting = pod(9, "p.entitled", "o", 2)
    loaded = LoadedCluster("test", (make_node("n", cpu=8), *running, waiting))
    answer = QueueQuestions(loaded, QueuesConfiguration(file=str(path))).pod(waiting)
    text = (
        "its queue is entitled to this: 30 s after its creation it evicts default/p2, default/p3 (others "
        "where a PodDisruptionBudget or a node requires it), if a node has room for it then"
    )
    assert answer.preemption == text


def tree_of(queues: str, partition: str = "") -> str:
    head = f"partitions:\n- name: default\n{partition}  queues:\n  - name: root\n    submitacl: '*'\n"
    return head + f"    queues: [{queues}]\n"


def owned(number: int, queue: str, app: str, cpu: int, user: str, groups: str = "", node: str = "") -> Pod:
    made = pod(number, queue, app, cpu, node=node)
    info = json.dumps({"user": user, "groups": groups.split()})
    notes = {"yunikorn.apache.org/user.info": info}
    return replace(made, metadata=replace(made.metadata, annotations=notes))


A_B = "{name: a, resources: {guaranteed: {vcore: 4}}}, {name: b}"
SHARED = "{name: a, resources: {guaranteed: {vcore: 1}}}, {name: b, resources: {guaranteed: {vcore: 1}}}"
FULL = [pod(number, "b", "x", node="n") for number in range(1, 5)]
MINE = pod(9, "a", "mine", 2)
NO_VICTIMS = (
    "if no node has room, preemption would not help: no other queue below {} has a pod that may be evicted: "
    "of equal or lower priority, and above the guarantee"
)
OLDER = "before it: application old, which was submitted earlier"


@pytest.mark.parametrize(
    ("queues", "pods", "text"),
    [
        pytest.param(
            tree_of("{name: a, limits: [{limit: g, groups: [dev], maxresources: {vcore: 3}}]}"),
            [
                owned(9, "a", "mine", 2, "ann", "dev"),
                owned(1, "a", "x", 2, "bob", "dev", "n"),
                owned(2, "a", "y", 4, "eve", "ops", "n"),
            ],
            [
                "waiting for quota of group dev in queue root.a: vcore 2 used, 2 asked, 3 max",
                "uses what it waits for: application x in root.a, vcore 2",
                "has to end first: default/p1 (vcore 2); it is not known when",
                "preemption would not help: pods are not evicted for limits of users and groups",
            ],
            id="the limit of a group counts its members only",
        ),
        pytest.param(
            tree_of(SHARED),
            [MINE, pod(1, "b", "x", 4, node="n"), pod(2, "b", "high", priority=5)],
            ["before it: queue root.b, priority 5 (root.a has 0)"],
            id="another queue has a higher priority, though a larger share",
        ),
        pytest.param(
            tree_of(SHARED.replace("b,", "b, properties: {priority.offset: '7'},")),
            [MINE, pod(1, "b", "x", 4, node="n"), pod(2, "b", "y")],
            ["before it: queue root.b, priority 7 (root.a has 0)"],
            id="another queue has a priority offset",
        ),
        pytest.param(
            tree_of(SHARED),
            [MINE, pod(1, "a", "x", 2, node="n"), pod(2, "b", "y", 1, node="n"), pod(3, "b", "z")],
            ["before it: queue root.b, share 1.00 (root.a has 2.00)"],
            id="another queue has a lower share",
        ),
        pytest.param(
            tree_of(SHARED),
            [MINE, pod(2, "b", "z", 3)],
            ["before it: queue root.b, which has more pending (the shares are 0.00)"],
            id="another queue has more pending",
        ),
        pytest.param(
            tree_of("{name: a, properties: {application.sort.priority: disabled}}"),
            [replace(MINE, spec=replace(MINE.spec, priority=9)), pod(2, "a", "old")],
            [OLDER],
            id="priority is disabled",
        ),
        pytest.param(
            tree_of("{name: a, properties: {application.sort.policy: fair}}"),
            [MINE, pod(1, "a", "mine", 3, node="n"), pod(2, "a", "less", 1, node="n"), pod(3, "a", "less")],
            ["before it: application less, which uses pods 1, vcore 1 (this one uses pods 1, vcore 3)"],
            id="another application uses less",
        ),
        pytest.param(
            tree_of("{name: a, properties: {application.sort.policy: fair}}"),
            [MINE, pod(2, "a", "old")],
            [OLDER],
            id="both applications use nothing",
        ),
        pytest.param(
            tree_of("{name: a, resources: {max: {vcore: 2}}}"),
            [MINE, pod(1, "a", "x", 1, node="n"), pod(8, "a", "mine"), pod(7, "a", "mine")],
            [
                "before it: 2 pods of the same application",
                "freed resources are offered first to 2 pods before it",
            ],
            id="pods of its own application",
        ),
        pytest.param(
            tree_of("{name: p, resources: {max: {vcore: 4}}, queues: [{name: a}, {name: b}]}"),
            [pod(9, "p.a", "mine"), pod(1, "p.a", "x", 4, node="n"), pod(2, "p.b", "y")],
            [
                "waiting for quota of queue root.p: vcore 4 used, 1 asked, 4 max",
                "before it: queue root.p.b, share 0.00 (root.p.a has 1.00)",
                "freed resources are offered first to 1 pod before it",
                "preemption would not help: queue root.p.a has no guarantee",
            ],
            id="pods of other queues wait for the limit of their parent, too",
        ),
        pytest.param(
            tree_of("{name: a, maxapplications: 1}"),
            [MINE, pod(1, "a", "x", node="n"), pod(2, "a", "x"), pod(3, "a", "old")],
            [
                "before it: application x, which was submitted earlier",
                OLDER,
                "freed resources are offered first to 1 pod before it",
            ],
            id="a pod of the application that runs waits for none",
        ),
        pytest.param(
            tree_of(A_B, "  preemption: {enabled: false}\n"),
            [MINE, *FULL],
            ["if no node has room, preemption would not help: it is disabled (preemption.enabled)"],
            id="preemption is disabled",
        ),
        pytest.param(
            tree_of(A_B),
            [replace(MINE, spec=replace(MINE.spec, preemption_policy="Never")), *FULL],
            ["if no node has room, preemption would not help: its preemptionPolicy is Never"],
            id="it must not preempt",
        ),
        pytest.param(
            tree_of(A_B),
            [replace(MINE, spec=replace(MINE.spec, priority=-1)), *FULL],
            [NO_VICTIMS.format("root")],
            id="all others have a higher priority",
        ),
        pytest.param(
            tree_of("{name: p, properties: {preemption.policy: fence}, queues: [" + A_B + "]}, {name: b}"),
            [pod(9, "p.a", "mine", 2), *FULL],
            [NO_VICTIMS.format("root.p")],
            id="what uses the nodes is outside the fence",
        ),
        pytest.param(
            tree_of(A_B.replace("b}", "b, resources: {guaranteed: {vcore: 1}}}")),
            [MINE, pod(1, "b", "x", 4, node="n")],
            [NO_VICTIMS.format("root")],
            id="the other queue would fall below its guarantee",
        ),
        pytest.param(
            tree_of(
                "{name: p, resources: {guaranteed: {vcore: 4}}, queues: [{name: a}, {name: b}]}, {name: c}"
            ),
            [pod(9, "p.a", "mine", 2), pod(1, "p.b", "x", 3, node="n"), pod(2, "c", "y", node="n")],
            [
                "if no node has room, preemption would not help: queue root.p: vcore 3 used, 2 asked, "
                "4 guaranteed"
            ],
            id="its sibling uses the guarantee of their parent",
        ),
        pytest.param(
            tree_of(A_B.replace("a,", "a, limits: [{limit: u, users: ['*'], maxresources: {vcore: 1}}],")),
            [MINE, *FULL],
            [
                "waiting for quota of user nobody in queue root.a: vcore 0 used, 2 asked, 1 max",
                "has to end first: nothing helps, it asks for more than the limit",
                "preemption would not help: pods are not evicted for limits of users and groups",
            ],
            id="it is entitled to this but for the limit of its user",
        ),
    ],
)
def test_a_situation(tmp_path: Path, queues: str, pods: list[Pod], text: list[str]) -> None:
    path = queues_file(tmp_path, queues)
    loaded = LoadedCluster("test", (make_node("n", cpu=16), *pods))
    questions = QueueQuestions(loaded, QueuesConfiguration(file=str(path)))
    lines = [line.strip() for line in questions.pod(pods[0]).text(pods[0].key)]
    starts = ("waiting for", "before it", "uses", "has to end", "freed", "preemption", "if no node")
    shown = [line for line in lines if line.startswith(starts)]
    assert [line for line in shown if line in text] == text, shown
    assert sum(line.startswith("before it") for line in shown) == sum("before it:" in line for line in text)


LIMITED = """
partitions:
- name: default
  queues:
  - name: root
    submitacl: "*"
    queues:
    - name: p
      resources: {max: {vcore: 6}}
      limits:
      - {limit: ann, users: [ann], maxresources: {vcore: 3}}
      queues:
      - {name: a, resources: {max: {vcore: 4}}}
      - {name: b}
"""


def must_end(tmp_path: Path, waiting: Pod, *running: Pod) -> list[str]:
    path = queues_file(tmp_path, LIMITED)
    loaded = LoadedCluster("test", (make_node("n", cpu=64), *running, waiting))
    found = QueueQuestions(loaded, QueuesConfiguration(file=str(path))).pod(waiting)
    assert found.must_end is not None
    return [*found.must_end.lines(), *(each.sentence() for each in found.also_blocking)]


def terminating(item: Pod) -> Pod:
    return replace(item, metadata=replace(item.metadata, deletion_timestamp=EPOCH))


def test_what_is_terminating_ends_first(tmp_path: Path) -> None:
    leaving = terminating(pod(1, "p.a", "x", 2, node="n"))
    running = pod(2, "p.a", "x", 2, node="n")
    assert must_end(tmp_path, pod(9, "p.a", "y", 2), leaving, running) == [
        "has to be freed first: vcore 2",
        "terminating now: default/p1 (vcore 2)",
        "has to end first: only what is terminating",
    ]


def test_several_pods_have_to_end(tmp_path: Path) -> None:
    """The fewest that free enough are those with the largest amounts."""
    running = [pod(number, "p.a", "x", 1, node="n") for number in range(1, 5)]
    assert must_end(tmp_path, pod(9, "p.a", "y", 2), *running) == [
        "has to be freed first: vcore 2",
        "has to end first: at least 2 pods, the largest are default/p1 (vcore 1), default/p2 (vcore 1), "
        "default/p3 (vcore 1), 1 more; it is not known when",
    ]


def test_only_pods_that_the_limit_counts_help(tmp_path: Path) -> None:
    """The limit of a user counts only the pods of that user, and the limit of the parent follows."""
    running = [
        queued_pod("own", "p.b", 2, "x", "ann", node="n"),
        queued_pod("other", "p.b", 4, "z", "bob", node="n"),
    ]
    assert must_end(tmp_path, queued_pod("new", "p.b", 2, "y", "ann"), *running) == [
        "has to be freed first: vcore 2",
        "has to end first: any of 2 pods: default/other (vcore 4), default/own (vcore 2); "
        "it is not known when",
        "waiting for quota of user ann in queue root.p: vcore 2 used, 2 asked, 3 max",
    ]
    running.pop()
    assert must_end(tmp_path, queued_pod("new", "p.b", 2, "y", "ann"), *running) == [
        "has to be freed first: vcore 1",
        "has to end first: default/own (vcore 2); it is not known when",
    ]


def test_invalid_task_groups_are_named() -> None:
    notes = {"yunikorn.apache.org/task-groups": "{}"}
    waiting = queued_pod("p9", "a", annotations=notes)
    loaded = in_config_map(make_node("n"), waiting, text=QUEUES)
    lines = list(QueueQuestions(loaded, queues_of(loaded)).pod(waiting).text("p9"))
    assert lines[2] == "  its task groups are ignored: it is not a JSON list"


@pytest.mark.parametrize(
    ("running", "waiting", "text"),
    [
        pytest.param(
            0,
            3,
            [
                "p0 waits for quota",
                "  task group w needs 3 pods at once (with the feature gate GenericWorkload)",
                "  waiting for quota of queue root.a: vcore 2 used, 3 asked, 4 max",
            ],
            id="the gang does not fit",
        ),
        pytest.param(
            0,
            2,
            [
                "p0 has room in its capacity queue",
                "  task group w needs 3 pods at once, but only 2 exist (with the feature gate "
                "GenericWorkload)",
            ],
            id="a pod is missing",
        ),
        pytest.param(1, 1, ["p0 has room in its capacity queue"], id="it has begun"),
    ],
)
def test_a_task_group_waits_together(running: int, waiting: int, text: list[str]) -> None:
    defined = [{"name": "w", "minMember": 3, "minResource": {"cpu": "1"}}]
    notes = {
        "yunikorn.apache.org/task-group-name": "w",
        "yunikorn.apache.org/task-groups": json.dumps(defined),
    }
    pods = [queued_pod(f"p{number}", "a", annotations=notes) for number in range(waiting)]
    begun = [queued_pod(f"r{number}", "a", annotations=notes, node="n") for number in range(running)]
    loaded = in_config_map(make_node("n"), pod(9, "a", "other", 2, node="n"), *begun, *pods, text=QUEUES)
    lines = list(QueueQuestions(loaded, queues_of(loaded)).pod(pods[0]).text("p0"))
    assert [line for line in lines if line.startswith(("p0", "  task", "  waiting"))] == text


def test_a_request_above_the_limit_never_fits(tmp_path: Path) -> None:
    text = must_end(tmp_path, pod(9, "p.a", "y", 5), pod(1, "p.a", "x", 1, node="n"))
    assert text == ["has to end first: nothing helps, it asks for more than the limit"]


def in_config_map(*objects: Object, text: str | None) -> LoadedCluster:
    """A cluster whose configuration names a ConfigMap with the queues."""
    config = default_config()
    queues = QueuesConfiguration(config_map=CONFIG_MAP)
    config = replace(config, bayplan=replace(config.bayplan, queues=queues))
    texts = {} if text is None else {CONFIG_MAP: text}
    return with_settings(LoadedCluster("test", objects, queues_texts=texts), SchedulerSettings(config))


@pytest.mark.parametrize("file", ["dump.yaml", "dump.json"])
def test_a_config_map_in_a_dump(tmp_path: Path, file: str) -> None:
    """As `kubectl get nodes,pods,configmaps -A -o json` writes it."""
    namespace, _, name = CONFIG_MAP.partition("/")
    meta = {"name": name, "namespace": namespace}
    data = {"queues.yaml": QUEUES}
    items: list[dict[str, Any]] = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}]
    items.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**meta, "name": "other"}})
    path, config = tmp_path / file, tmp_path / "config.yaml"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    config.write_text(
        f"---\napiVersion: {OWN_API_VERSION}\nkind: BayplanConfiguration\n"
        f"queues: {{configMap: {CONFIG_MAP}}}\n"
    )
    loaded = load_cluster(SourceOptions(files=(str(path),), config_file=str(config)))
    rows = QueueQuestions(loaded, queues_of(loaded)).rows()
    assert [row.queue.path for row in rows] == ["root", "root.a", "root.b", "root.c"]


def queues_of(loaded: LoadedCluster) -> QueuesConfiguration:
    assert loaded.config is not None
    assert loaded.config.bayplan.queues is not None
    return loaded.config.bayplan.queues


def test_queues_of_a_config_map() -> None:
    """The tree, the limits of a pod and what-if come from its content."""
    waiting = pod(9, "a", "new", 2)
    loaded = in_config_map(make_node("n", cpu=16), *RUNNING, waiting, text=QUEUES)
    questions = QueueQuestions(loaded, queues_of(loaded))
    assert [row.queue.path for row in questions.rows()] == ["root", "root.a", "root.b", "root.c"]
    assert questions.pod(waiting).blocking is not None
    (placed,) = WhatIfCluster.from_loaded(loaded).schedule()
    assert placed.reason == "waiting for quota of queue root.a: vcore 3 used, 2 asked, 4 max"


def test_a_config_map_that_was_not_read() -> None:
    """Nothing is said about queues that are not known."""
    loaded = in_config_map(make_node("n"), text=None)
    with pytest.raises(ConfigError, match="ConfigMap yunikorn/yunikorn-configs, which was not read"):
        QueueQuestions(loaded, queues_of(loaded))
    with pytest.raises(ConfigError, match="was not read"):
        WhatIfCluster.from_loaded(loaded)


def test_another_file_replaces_a_config_map(tmp_path: Path) -> None:
    path = queues_file(tmp_path, QUEUES)
    loaded = in_config_map(make_node("n"), text=DEFAULT_CONFIG)
    assert queues_of(loaded).with_file(str(path)) == QueuesConfiguration(file=str(path))


@pytest.mark.parametrize(
    ("queue", "cause"),
    [
        pytest.param("root.none", "queue root.none does not exist", id="absent"),
        pytest.param("root.p", "queue root.p has queues below it", id="a parent"),
        pytest.param("root.private", "user nobody may not submit to queue root.private", id="not allowed"),
        pytest.param("", "it names no queue", id="none named"),
    ],
)
def test_why_no_queue_takes_an_application(queue: str, cause: str) -> None:
    """YuniKorn says the same for all of them."""
    text = """
partitions:
- name: default
  queues:
  - name: root
    queues:
    - {name: p, submitacl: "*", queues: [{name: a}]}
    - {name: private, submitacl: " staff"}
"""
    loaded = in_config_map(make_node("n"), text=text)
    labels = {"applicationId": "x", **({"queue": queue} if queue else {})}
    answer = QueueQuestions(loaded, queues_of(loaded)).pod(make_pod("x", labels=labels))
    assert answer.problem.endswith(f"no placement rule matched ({cause})")
