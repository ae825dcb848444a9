"""Labels and annotations that YuniKorn's shim reads."""

from __future__ import annotations

import json

import pytest

from bayplan.api.meta import ObjectMeta, OwnerReference
from bayplan.api.node import Namespace
from bayplan.api.workloads import PriorityClass
from bayplan.queues.yunikorn.pods import application_id, facts, opts_out, queue_name, submission, user_of
from bayplan.queues.yunikorn.task_groups import TASK_GROUPS, TaskGroup, task_groups_of, task_groups_problem
from bayplan.testing.builders import make_pod

DOMAIN = "yunikorn.apache.org/"


@pytest.mark.parametrize(
    ("labels", "annotations", "name"),
    [
        pytest.param({f"{DOMAIN}app-id": "a", "applicationId": "b"}, {}, "a", id="its own label first"),
        pytest.param({"applicationId": "b"}, {f"{DOMAIN}app-id": "c"}, "c", id="then the annotation"),
        pytest.param({"applicationId": "b", "spark-app-selector": "s"}, {}, "b", id="then the old label"),
        pytest.param({"spark-app-selector": "s"}, {}, "s", id="then that of Spark"),
        pytest.param({}, {}, "yunikorn-default-autogen", id="else one for the namespace"),
        pytest.param({"applicationId": "x-uniqueautogen"}, {}, "x-u1", id="one for each pod"),
    ],
)
def test_application(labels: dict[str, str], annotations: dict[str, str], name: str) -> None:
    assert application_id(make_pod(labels=labels, annotations=annotations, uid="u1")) == name


def test_queue() -> None:
    assert queue_name(make_pod(labels={"queue": "q"}, annotations={f"{DOMAIN}queue": "a"})) == "a"


@pytest.mark.parametrize(
    ("text", "user"),
    [
        ('{"user": "ann", "groups": ["dev", "ops"]}', ("ann", ("dev", "ops"))),
        ('{"user": "ann"}', ("ann", ("ann",))),
        ('{"user": ""}', ("nobody", ("nobody",))),
        ("not JSON", ("nobody", ("nobody",))),
        ('{"user": "ann", "groups": "dev"}', ("nobody", ("nobody",))),
        ('{"user": null, "groups": null}', ("nobody", ("nobody",))),
        ("[]", ("nobody", ("nobody",))),
    ],
)
def test_user(text: str, user: tuple[str, tuple[str, ...]]) -> None:
    assert user_of(make_pod(annotations={f"{DOMAIN}user.info": text})) == user


def test_the_quota_of_a_namespace() -> None:
    annotations = {
        f"{DOMAIN}namespace.quota": '{"cpu": "2", "memory": "1Gi"}',
        f"{DOMAIN}namespace.guaranteed": "nonsense",
        f"{DOMAIN}namespace.maxApps": "3",
        f"{DOMAIN}parentqueue": "root.teams",
    }
    app = submission(
        make_pod(node="n"), Namespace(metadata=ObjectMeta(name="default", annotations=annotations))
    )
    assert json.loads(app.tag("namespace.resourcequota")) == {
        "resources": {"vcore": {"value": 2000}, "memory": {"value": 1 << 30}}
    }
    assert (app.tag("namespace.resourceguaranteed"), app.tag("namespace.resourcemaxapps")) == ("", "3")
    assert (app.tag("namespace.parentqueue"), app.is_forced) == ("root.teams", True)


@pytest.mark.parametrize(
    ("annotations", "amounts"),
    [
        pytest.param({"quota": '{"cpu": "1500m"}'}, {"vcore": 1500}, id="millicores"),
        pytest.param(
            {"quota": '{"cpu": "0.5", "memory": "1.5Gi"}'}, {"vcore": 500, "memory": 3 << 29}, id="fractions"
        ),
        pytest.param({"max.cpu": "2", "max.memory": "1Gi"}, {"vcore": 2000, "memory": 1 << 30}, id="older"),
        pytest.param({"max.cpu": "2", "quota": '{"cpu": "1"}'}, {"vcore": 1000}, id="the newer one counts"),
        pytest.param({"quota": '{"cpu": "1", "memory": "much"}'}, {}, id="one is invalid"),
        pytest.param({"quota": '{"cpu": []}'}, {}, id="a list"),
    ],
)
def test_quantities_of_a_namespace(annotations: dict[str, str], amounts: dict[str, int]) -> None:
    """They are those of Kubernetes, not of queues.yaml."""
    meta = ObjectMeta(
        name="default", annotations={f"{DOMAIN}namespace.{key}": text for key, text in annotations.items()}
    )
    tag = submission(make_pod(), Namespace(metadata=meta)).tag("namespace.resourcequota")
    found = json.loads(tag)["resources"] if tag else {}
    assert {kind: each["value"] for kind, each in found.items()} == amounts


def test_facts() -> None:
    owner = OwnerReference(kind="DaemonSet", name="d", controller=True)
    annotations = {
        "internal.yunikorn.apache.org/placeholder": "true",
        f"{DOMAIN}task-group-name": "workers",
    }
    found = facts(make_pod(owner=owner, annotations=annotations, preemption_policy="Never"))
    assert (found.role, found.is_placeholder, found.may_preempt) == ("workers", True, False)
    assert found.required_node == ""


@pytest.mark.parametrize(
    ("pod", "priority_class", "opted_out"),
    [
        (None, None, False),
        ("false", None, True),
        ("False", None, False),
        ("true", "false", False),
        ("no", "false", True),
        (None, "false", True),
        (None, "true", False),
    ],
)
def test_pods_opt_out_of_preemption(pod: str | None, priority_class: str | None, opted_out: bool) -> None:
    """By the exact texts true and false; the annotation of the PriorityClass counts if that of the pod is
    neither."""
    key = f"{DOMAIN}allow-preemption"
    made = make_pod(annotations={} if pod is None else {key: pod})
    annotations = {} if priority_class is None else {key: priority_class}
    known = PriorityClass(metadata=ObjectMeta(name="batch", annotations=annotations))
    assert opts_out(made, known) is opted_out


def test_task_groups() -> None:
    text = '[{"name": "g", "minMember": 2, "minResource": {"cpu": "500m", "memory": "1Ki"}}]'
    pod = make_pod(annotations={TASK_GROUPS: text})
    assert task_groups_of(pod) == (TaskGroup("g", 2, {"pods": 1, "vcore": 500, "memory": 1024}),)
    assert task_groups_problem(pod) == ""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("[{]", "Expecting property name", id="no JSON"),
        pytest.param("{}", "it is not a JSON list", id="no list"),
        pytest.param("[1]", "a task group is not a JSON object", id="no object"),
        pytest.param('[{"minMember": 1}]', "can't get taskGroup Name from pod annotation, [", id="no name"),
        pytest.param(
            '[{"name": "g", "minMember": 1}]',
            "can't get taskGroup MinResource from pod annotation, [",
            id="no resources",
        ),
        pytest.param(
            '[{"name": "g", "minResource": {}}]',
            "can't get taskGroup MinMember from pod annotation, [",
            id="no minimum",
        ),
        pytest.param(
            '[{"name": "g", "minResource": {}, "minMember": -1}]',
            "minMember cannot be negative, [",
            id="a negative minimum",
        ),
        pytest.param(
            '[{"name": "g", "minResource": {"cpu": "x"}, "minMember": 1}]', "", id="an invalid quantity"
        ),
    ],
)
def test_invalid_task_groups(text: str, problem: str) -> None:
    pod = make_pod(annotations={TASK_GROUPS: text})
    assert task_groups_of(pod) == ()
    assert task_groups_problem(pod)
    assert task_groups_problem(pod).startswith(problem)
