"""One extender over a real socket: what it is sent, and what its responses mean."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bayplan.api.pod import Pod
from bayplan.extender.client import ExtenderError
from bayplan.extender.extender import Extender, FilterResult
from bayplan.extender.wire import ClusterView
from bayplan.framework.outcome import Eviction
from bayplan.testing.builders import make_container, make_node, make_pod

from .webhook import Webhook, extender_of, make_cluster, make_config

NODES = ("n1", "n2", "n3")
POD = make_pod("p", uid="pu")
A, B, C = (
    make_pod(name, uid=f"u-{name}", node=node) for name, node in (("a", "n1"), ("b", "n1"), ("c", "n2"))
)
CANDIDATES = (Eviction("n1", (A,), 1), Eviction("n2", (C,)))


async def _call(extender: Extender, verb: str) -> None:
    match verb:
        case "filter":
            await extender.filter(POD, ("n2", "n1"))
        case "prioritize":
            await extender.prioritize(POD, ("n2", "n1"))
        case "preempt":
            await extender.process_preemption(POD, CANDIDATES)
        case _:
            await extender.bind(POD, "n1")


@pytest.mark.parametrize(
    ("cache", "answer", "feasible"),
    [
        pytest.param(True, {"NodeNames": ["n3", "n1"]}, ("n3", "n1"), id="names, in the answer's order"),
        pytest.param(True, {"NodeNames": ["n1", "n1"]}, ("n1",), id="a name twice is one node"),
        pytest.param(True, {"NodeNames": [], "Nodes": {"items": [{}]}}, (), id="no names beat nodes"),
        pytest.param(
            True,
            {"Nodes": {"items": [{"metadata": {"name": "n2"}}]}},
            ("n2",),
            id="nodes where names are null",
        ),
        pytest.param(
            False,
            {"Nodes": {"items": [{"metadata": {"name": "n2"}}, {"metadata": {"name": "n1"}}]}},
            ("n2", "n1"),
            id="nodes, in the answer's order",
        ),
        pytest.param(False, {"NodeNames": ["n1"]}, (), id="names count only where they were sent"),
        pytest.param(True, {}, (), id="neither: nothing is left"),
    ],
)
def test_filter(cache: bool, answer: Any, feasible: tuple[str, ...]) -> None:
    async def scenario() -> FilterResult:
        async with (
            Webhook({"filter": answer}) as webhook,
            extender_of(make_config(webhook.url, cache=cache), NODES) as extender,
        ):
            return await extender.filter(POD, NODES)

    assert asyncio.run(scenario()).feasible == feasible


def test_filter_failures_are_handed_on() -> None:
    answer = {"NodeNames": ["n1"], "FailedNodes": {"n2": "no"}, "FailedAndUnresolvableNodes": {"n3": "never"}}

    async def scenario() -> FilterResult:
        async with (
            Webhook({"filter": answer}) as webhook,
            extender_of(make_config(webhook.url)) as extender,
        ):
            return await extender.filter(POD, NODES)

    assert asyncio.run(scenario()) == FilterResult(("n1",), {"n2": "no"}, {"n3": "never"})


@pytest.mark.parametrize(
    ("verb", "cache", "keys"),
    [
        pytest.param("filter", True, {"Nodes": None, "NodeNames": ["n2", "n1"]}, id="filter with a cache"),
        pytest.param("filter", False, {"Nodes": ["n2", "n1"], "NodeNames": None}, id="filter without"),
        pytest.param("prioritize", True, {"Nodes": None, "NodeNames": ["n2", "n1"]}, id="prioritize with"),
        pytest.param(
            "prioritize", False, {"Nodes": ["n2", "n1"], "NodeNames": None}, id="prioritize without"
        ),
        pytest.param(
            "preempt",
            True,
            {
                "NodeNameToVictims": None,
                "NodeNameToMetaVictims": {
                    "n1": {"Pods": [{"UID": "u-a"}], "NumPDBViolations": 1},
                    "n2": {"Pods": [{"UID": "u-c"}], "NumPDBViolations": 0},
                },
            },
            id="preempt with",
        ),
        pytest.param(
            "preempt",
            False,
            {
                "NodeNameToVictims": {
                    "n1": {"Pods": ["a"], "NumPDBViolations": 1},
                    "n2": {"Pods": ["c"], "NumPDBViolations": 0},
                },
                "NodeNameToMetaVictims": None,
            },
            id="preempt without",
        ),
    ],
)
def test_what_is_sent(verb: str, cache: bool, keys: dict[str, Any]) -> None:
    """A nodeCacheCapable extender gets names and uids, another one whole objects, shown here by name."""

    async def scenario() -> tuple[str, Any]:
        async with (
            Webhook({verb: [] if verb == "prioritize" else {}}) as webhook,
            extender_of(make_config(webhook.url, cache=cache), NODES, (A, C)) as extender,
        ):
            await _call(extender, verb)
            assert webhook.content_types == {"application/json"}
            return webhook.calls[0]

    called, body = asyncio.run(scenario())
    pod = body.pop("Pod")
    if body.get("Nodes"):
        body["Nodes"] = [node["metadata"]["name"] for node in body["Nodes"]["items"]]
    for victims in (body.get("NodeNameToVictims") or {}).values():
        victims["Pods"] = [victim["metadata"]["name"] for victim in victims["Pods"]]
    assert (called, pod["metadata"]["uid"], body) == (verb, "pu", keys)


def test_large_clusters_are_sent_whole() -> None:
    names = [f"node-{i}" for i in range(5000)]
    nodes = [make_node(name, labels={"zone": "a" * 100}) for name in names]
    passed = {"Nodes": {"items": [{"metadata": {"name": name}} for name in names]}}

    async def scenario() -> tuple[FilterResult, Any]:
        async with (
            Webhook({"filter": passed}) as webhook,
            extender_of(make_config(webhook.url, cache=False), nodes) as extender,
        ):
            return await extender.filter(POD, names), webhook.calls[0][1]

    answer, body = asyncio.run(scenario())
    assert answer.feasible == tuple(names)
    assert [node["metadata"]["name"] for node in body["Nodes"]["items"]] == names


def test_prioritize_gives_the_scores_as_they_are() -> None:
    """Scores are not checked, and several for one node add up."""
    entries = [{"Host": "n1", "Score": 1000}, {"host": "n2", "score": -1}, {"Host": "n1", "Score": 1}]

    async def scenario() -> dict[str, int]:
        async with (
            Webhook({"prioritize": entries}) as webhook,
            extender_of(make_config(webhook.url)) as extender,
        ):
            return await extender.prioritize(POD, NODES)

    assert asyncio.run(scenario()) == {"n1": 1001, "n2": -1}


@pytest.mark.parametrize(
    ("left", "evictions"),
    [
        pytest.param(
            {"n1": {"Pods": [{"UID": "u-a"}], "NumPDBViolations": 1}},
            (Eviction("n1", (A,), 1),),
            id="one of the candidates",
        ),
        pytest.param(
            {"n2": {"Pods": [{"UID": "u-c"}]}, "n1": {"Pods": [{"UID": "u-a"}]}},
            (Eviction("n1", (A,)), Eviction("n2", (C,))),
            id="candidates keep their order",
        ),
        pytest.param(
            {"n1": {"pods": [{"uid": "u-b"}, {"uid": "u-a"}], "numPDBViolations": 3}},
            (Eviction("n1", (B, A), 3),),
            id="other victims on the node, in the answer's order",
        ),
        pytest.param({"n3": {"Pods": []}}, (Eviction("n3", ()),), id="a node that was no candidate"),
        pytest.param({}, (), id="nothing"),
    ],
)
def test_preempt(left: Any, evictions: tuple[Eviction, ...]) -> None:
    async def scenario() -> tuple[Eviction, ...]:
        async with (
            Webhook({"preempt": {"NodeNameToMetaVictims": left}}) as webhook,
            extender_of(make_config(webhook.url), NODES, (A, B, C)) as extender,
        ):
            return await extender.process_preemption(POD, CANDIDATES)

    assert asyncio.run(scenario()) == evictions


def test_bind() -> None:
    async def scenario() -> Any:
        async with Webhook({"bind": {}}) as webhook, extender_of(make_config(webhook.url)) as extender:
            await extender.bind(POD, "n1")
            return webhook.calls

    expected = {"PodName": "p", "PodNamespace": "default", "PodUID": "pu", "Node": "n1"}
    assert asyncio.run(scenario()) == [("bind", expected)]


@pytest.mark.parametrize(
    ("verb", "answer", "text"),
    [
        pytest.param("filter", {"Error": "not today", "NodeNames": ["n1"]}, "not today", id="an error, bare"),
        pytest.param("bind", {"error": "not today"}, "not today", id="an error from bind, bare"),
        pytest.param(
            "filter",
            {"NodeNames": ["n1", "n9"]},
            'extender "URL/" claims a filtered node "n9" which is not found in the input node list',
            id="a name that was never sent",
        ),
        pytest.param(
            "filter",
            {"Nodes": {"items": [{"metadata": {"name": "n3"}}]}},
            'extender "URL/" claims a filtered node "n3" which is not found in the input node list',
            id="a whole node that was never sent, though it exists",
        ),
        pytest.param(
            "preempt",
            {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "u-c"}]}}},
            "extender: URL/ claims to preempt pod (UID: &{u-c}) on node: n1, "
            "but the pod is not found on that node",
            id="a victim from another node",
        ),
        pytest.param(
            "preempt",
            {"NodeNameToMetaVictims": {"n9": {"Pods": [{"UID": "u-c"}]}}},
            'nodeinfo not found for node name "n9"',
            id="victims on no node",
        ),
        pytest.param(
            "filter",
            b'{"NodeNames": "n1"}',
            "failed filter with extender at URL URL/filter: NodeNames: expected a list, got a string",
            id="a field of the wrong type",
        ),
        pytest.param(
            "prioritize",
            b"<html>",
            "failed prioritize with extender at URL URL/prioritize: "
            "the response is not JSON: JSON is malformed: invalid character (byte 0)",
            id="no JSON",
        ),
    ],
)
def test_errors(verb: str, answer: Any, text: str) -> None:
    """In upstream's texts the URL is the prefix as configured, here with a slash at its end."""

    async def scenario() -> tuple[str, str]:
        async with (
            Webhook({verb: answer}) as webhook,
            extender_of(make_config(f"{webhook.url}/"), NODES, (A, B, C)) as extender,
        ):
            with pytest.raises(ExtenderError) as caught:
                await _call(extender, verb)
            return str(caught.value), caught.value.url

    message, url = asyncio.run(scenario())
    assert message == text.replace("URL/", url)


GPU = make_container(requests={"example.com/gpu": 1})


@pytest.mark.parametrize(
    ("manages", "pod", "interested"),
    [
        pytest.param(
            (), make_pod(), True, id="an extender without managed resources is called for every pod"
        ),
        pytest.param(("example.com/gpu",), make_pod(cpu=1), False, id="a pod that names none"),
        pytest.param(
            ("example.com/foo", "example.com/gpu"), make_pod(containers=[GPU]), True, id="a request names one"
        ),
        pytest.param(
            ("example.com/gpu",),
            make_pod(limits={"example.com/gpu": 0}),
            True,
            id="a limit names one, even 0",
        ),
        pytest.param(
            ("example.com/gpu",), make_pod(init_containers=[GPU]), True, id="an init container names one"
        ),
        pytest.param(
            ("example.com/gpu",),
            make_pod(overhead={"example.com/gpu": 1}),
            False,
            id="overhead does not count",
        ),
    ],
)
def test_interest(manages: tuple[str, ...], pod: Pod, interested: bool) -> None:
    async def scenario() -> bool:
        async with extender_of(make_config("http://x", manages=manages)) as extender:
            return extender.is_interested(pod)

    assert asyncio.run(scenario()) is interested


def test_a_verb_that_it_lacks_is_not_called() -> None:
    """Without filter all nodes stay; without prioritize all score 0."""

    async def scenario() -> tuple[FilterResult, dict[str, int], tuple[bool, ...]]:
        async with extender_of(make_config("http://127.0.0.1:9", "bind")) as extender:
            verbs = (
                extender.is_filter,
                extender.is_prioritizer,
                extender.supports_preemption,
                extender.is_binder,
            )
            return await extender.filter(POD, NODES), await extender.prioritize(POD, NODES), verbs

    expected = FilterResult(NODES), {"n1": 0, "n2": 0, "n3": 0}, (False, False, False, True)
    assert asyncio.run(scenario()) == expected


def test_the_view_has_nodes_and_their_pods_but_no_deleted_nodes() -> None:
    view = ClusterView(make_cluster(["n1"], [A, C]))
    node = view.node("n1")
    assert node is not None
    assert (node.name, list(view.pods_on("n1")), view.node("n2"), view.node_count) == ("n1", [A], None, 1)
