"""Which pods are on which node: every state, every event in it, and the columns afterwards."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from bayplan.api.pod import Pod
from bayplan.state.cache import Cache, CacheError
from bayplan.state.cluster import Cluster
from bayplan.testing.builders import make_node, make_pod

UID = "pod/default/p(default/p)"

Act = Callable[[Cache], object]


def pod(node: str = "", name: str = "p", cpu: str = "1") -> Pod:
    return make_pod(name, node=node, cpu=cpu)


def make_cache(*acts: Act) -> Cache:
    """A cache that has nodes a and b and to which this has happened."""
    cache = Cache(Cluster())
    for name in "ab":
        cache.set_node(make_node(name, cpu="4"))
    for act in acts:
        act(cache)
    return cache


def requested(cache: Cache) -> dict[str, int]:
    """Thousandths of a cpu that pods request on each node that has any."""
    nodes = cache.cluster.nodes
    cells = nodes.resource("cpu").requested.cell
    return {name: int(cells[row]) for name, row in nodes.row_of.items() if cells[row]}


def assume(node: str = "a") -> Act:
    return lambda cache: cache.assume(pod(), node)


def forget(node: str = "a") -> Act:
    return lambda cache: cache.forget(pod(), node)


def add(node: str = "a") -> Act:
    return lambda cache: cache.add(pod(node))


def update(node: str = "a", cpu: str = "1") -> Act:
    return lambda cache: cache.update(pod(node, cpu=cpu))


def remove(node: str = "a") -> Act:
    return lambda cache: cache.remove(pod(node))


# What happens to a pod

UNKNOWN: list[Act] = []
ASSUMED = [assume()]
CONFIRMED = [assume(), add()]


@pytest.mark.parametrize(
    ("before", "act", "assumed", "columns"),
    [
        pytest.param(UNKNOWN, assume(), True, {"a": 1000}, id="assumed: it counts at once"),
        pytest.param(UNKNOWN, add(), False, {"a": 1000}, id="bound by another scheduler: it counts"),
        pytest.param(UNKNOWN, forget(), False, {}, id="an unknown pod has nothing to forget"),
        pytest.param(ASSUMED, add(), False, {"a": 1000}, id="confirmed: it counts once"),
        pytest.param(ASSUMED, add("b"), False, {"b": 1000}, id="bound elsewhere: it counts there"),
        pytest.param(ASSUMED, forget(), False, {}, id="forgotten: it no longer counts"),
        pytest.param(ASSUMED, remove(), False, {}, id="deleted before it was confirmed"),
        pytest.param(ASSUMED, remove(""), False, {}, id="deleted, and its binding was never seen"),
        pytest.param(CONFIRMED, update(), False, {"a": 1000}, id="updated"),
        pytest.param(CONFIRMED, update(cpu="3"), False, {"a": 3000}, id="resized"),
        pytest.param(CONFIRMED, update("b"), False, {"b": 1000}, id="moved: the API server is right"),
        pytest.param(CONFIRMED, remove(), False, {}, id="deleted"),
        pytest.param(CONFIRMED, remove("b"), False, {}, id="deleted elsewhere than counted"),
        pytest.param(
            [add(), remove()], assume("b"), True, {"b": 1000}, id="assumed again after it was deleted"
        ),
        pytest.param([assume(), forget()], add("b"), False, {"b": 1000}, id="bound after it was forgotten"),
    ],
)
def test_every_way_from_one_state_to_another(
    before: list[Act], act: Act, assumed: bool, columns: dict[str, int]
) -> None:
    cache = make_cache(*before)
    act(cache)
    assert cache.is_assumed("pod/default/p") is assumed
    assert requested(cache) == columns
    assert cache.pod_count == len(columns)
    assert cache.assumed_count == len(cache.assumed_pods()) == assumed
    assert cache.node_of("pod/default/p") == "".join(columns)


@pytest.mark.parametrize(
    ("before", "act", "text"),
    [
        pytest.param(
            ASSUMED, assume("b"), f"pod {UID} is in the cache, so can't be assumed", id="assume twice"
        ),
        pytest.param(
            CONFIRMED, assume(), f"pod {UID} is in the cache, so can't be assumed", id="assume what is bound"
        ),
        pytest.param(CONFIRMED, add(), f"pod {UID} was already in added state", id="add twice"),
        pytest.param(
            UNKNOWN,
            update(),
            f"pod {UID} is not added to scheduler cache, so cannot be updated",
            id="update what is unknown",
        ),
        pytest.param(
            ASSUMED, update(), f"assumed pod {UID} should not be updated", id="update what is not confirmed"
        ),
        pytest.param(
            UNKNOWN,
            remove(),
            f"pod {UID} is not found in scheduler cache, so cannot be removed from it",
            id="remove what is unknown",
        ),
        pytest.param(
            ASSUMED, forget("b"), f"pod {UID} was assumed on b but assigned to a", id="forget on another node"
        ),
        pytest.param(
            CONFIRMED, forget(), f"pod {UID} wasn't assumed so cannot be forgotten", id="forget what is bound"
        ),
        pytest.param(UNKNOWN, lambda cache: cache.remove_node("c"), "node c is not found", id="unknown node"),
    ],
)
def test_what_does_not_fit_is_rejected_and_changes_nothing(before: list[Act], act: Act, text: str) -> None:
    cache = make_cache(*before)
    columns = requested(cache)
    with pytest.raises(CacheError) as raised:
        act(cache)
    assert str(raised.value) == text
    assert requested(cache) == columns


@pytest.mark.parametrize("verb", ["assume", "add"])
def test_a_pod_without_a_uid_is_rejected(verb: str) -> None:
    without_uid = make_pod("p", node="a", uid="")
    with pytest.raises(CacheError, match="cannot get cache key for pod with empty UID"):
        make_cache(
            lambda cache: cache.assume(without_uid, "a") if verb == "assume" else cache.add(without_uid)
        )


@pytest.mark.parametrize(
    ("act", "text"),
    [
        pytest.param(update("b"), "pod default/p is on node b, not on a as assumed", id="moved"),
        pytest.param(remove("b"), "pod default/p was deleted on node b but counted on a", id="deleted"),
    ],
)
def test_a_disagreement_with_the_api_server_is_reported(
    act: Act, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    act(make_cache(*CONFIRMED))
    assert caplog.messages == [text]


def test_nothing_is_reported_where_they_agree(caplog: pytest.LogCaptureFixture) -> None:
    make_cache(assume(), add(), update(), remove())
    assert caplog.messages == []


# Nodes


def test_a_pod_may_come_before_its_node() -> None:
    cache = make_cache(add("late"))
    assert cache.cluster.node_count == 2
    assert cache.node_count == 3
    cache.set_node(make_node("late", cpu="4"))
    assert cache.cluster.node_count == 3
    assert requested(cache) == {"late": 1000}


def test_a_deleted_node_keeps_its_row_while_it_has_pods() -> None:
    cache = make_cache(add("a"))
    cache.remove_node("a")
    assert (cache.cluster.node_count, cache.node_count) == (1, 2)
    with pytest.raises(CacheError, match="node a is not found"):
        cache.remove_node("a")
    cache.set_node(make_node("a", cpu="4"))
    assert (cache.cluster.node_count, requested(cache)) == (2, {"a": 1000})


def test_the_row_of_a_deleted_node_is_released_with_its_last_pod() -> None:
    cache = make_cache(add("a"))
    cache.remove_node("a")
    cache.remove(pod("a"))
    assert cache.node_count == 1


def test_an_assumed_pod_stays_when_its_node_is_deleted() -> None:
    cache = make_cache(assume("a"))
    cache.remove_node("a")
    assert cache.is_assumed("pod/default/p")
    assert cache.forget(pod(), "a")
    assert (cache.node_count, cache.pod_count) == (1, 0)


# A random life


class Plain:
    """The same bookkeeping with two dictionaries."""

    def __init__(self) -> None:
        self.assumed: dict[str, str] = {}
        self.confirmed: dict[str, str] = {}

    def columns(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for node in (*self.assumed.values(), *self.confirmed.values()):
            counts[node] = counts.get(node, 0) + 1000
        return counts

    def allows(self, verb: str, name: str, node: str) -> bool:
        known = name in self.assumed or name in self.confirmed
        match verb:
            case "assume":
                return not known
            case "forget":
                return not known or self.assumed.get(name) == node
            case "add":
                return name not in self.confirmed
            case "update":
                return name in self.confirmed
        return known

    def do(self, verb: str, name: str, node: str) -> None:
        if verb in ("forget", "remove", "add"):
            self.assumed.pop(name, None)
        if verb == "remove":
            self.confirmed.pop(name, None)
        if verb == "assume":
            self.assumed[name] = node
        if verb in ("add", "update"):
            self.confirmed[name] = node


def act_on(cache: Cache, verb: str, name: str, node: str) -> None:
    item = pod(name=name)
    assigned = replace(item, spec=replace(item.spec, node_name=node))
    match verb:
        case "assume":
            cache.assume(item, node)
        case "forget":
            cache.forget(item, node)
        case "add":
            cache.add(assigned)
        case "update":
            cache.update(assigned)
        case "remove":
            cache.remove(assigned)


@pytest.mark.parametrize("seed", range(10))
def test_a_random_life_agrees_with_plain_bookkeeping(seed: int) -> None:
    """What is rejected is rejected by both, and the columns are sums of what is known."""
    rng = random.Random(seed)
    cache, plain = make_cache(), Plain()
    for _ in range(500):
        verb = rng.choice(("assume", "forget", "add", "update", "remove"))
        name, node = rng.choice("pqrst"), rng.choice("abc")
        allowed = plain.allows(verb, name, node)
        if allowed:
            act_on(cache, verb, name, node)
            plain.do(verb, name, node)
        else:
            with pytest.raises(CacheError):
                act_on(cache, verb, name, node)
        assert requested(cache) == plain.columns()
        assert cache.assumed_count == len(plain.assumed)
        assert cache.pod_count == len(plain.assumed) + len(plain.confirmed)
