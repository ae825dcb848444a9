"""The bytes of the protocol, both ways."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from bayplan.extender.wire import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    HostPriority,
    HostPriorityList,
    MalformedResponseError,
    Message,
    MetaPod,
    MetaVictims,
    NodeList,
    Victims,
    VictimUIDs,
)

POD = Raw(b'{"metadata":{"name":"a"},"spec":{},"status":{}}')


@pytest.mark.parametrize(
    ("message", "text"),
    [
        pytest.param(
            ExtenderArgs(POD, node_names=["n1", "n2"]),
            b'{"Pod":{"metadata":{"name":"a"},"spec":{},"status":{}},"Nodes":null,"NodeNames":["n1","n2"]}',
            id="names, with null for the nodes",
        ),
        pytest.param(
            ExtenderArgs(Raw(b"{}"), nodes=NodeList(items=[Raw(b'{"a":1}'), Raw(b'{"b":2}')])),
            b'{"Pod":{},"Nodes":{"metadata":{},"items":[{"a":1},{"b":2}]},"NodeNames":null}',
            id="nodes as a list of the API, with null for the names",
        ),
        pytest.param(
            ExtenderPreemptionArgs(Raw(b"{}"), node_name_to_victims={"n": Victims([Raw(b'{"c":3}')], 2)}),
            b'{"Pod":{},"NodeNameToVictims":{"n":{"Pods":[{"c":3}],"NumPDBViolations":2}},'
            b'"NodeNameToMetaVictims":null}',
            id="victims as pods",
        ),
        pytest.param(
            ExtenderPreemptionArgs(
                Raw(b"{}"), node_name_to_meta_victims={"n": MetaVictims([MetaPod(uid="u")])}
            ),
            b'{"Pod":{},"NodeNameToVictims":null,'
            b'"NodeNameToMetaVictims":{"n":{"Pods":[{"UID":"u"}],"NumPDBViolations":0}}}',
            id="victims by uid",
        ),
        pytest.param(
            ExtenderBindingArgs(pod_name="p", pod_namespace="ns", pod_uid="u", node="n"),
            b'{"PodName":"p","PodNamespace":"ns","PodUID":"u","Node":"n"}',
            id="a binding",
        ),
    ],
)
def test_written(message: Message, text: bytes) -> None:
    assert message.encode() == text


@pytest.mark.parametrize(
    ("text", "result"),
    [
        pytest.param(
            b'{"NodeNames":["n1"],"FailedNodes":{"n2":"no"},"FailedAndUnresolvableNodes":{"n3":"never"}}',
            ExtenderFilterResult(None, ("n1",), {"n2": "no"}, {"n3": "never"}),
            id="keys as written",
        ),
        pytest.param(
            b'{"nodenames":["n1"],"FAILEDNODES":{"N2":"no"},"failedAndUnresolvableNodes":{},"eRRor":"e"}',
            ExtenderFilterResult(None, ("n1",), {"N2": "no"}, {}, "e"),
            id="keys in any case, names of nodes as they are",
        ),
        pytest.param(
            b'{"Nodes":{"metadata":{},"items":[{"metadata":{"name":"n1","labels":{}},"spec":{}},{}]}}',
            ExtenderFilterResult(("n1", "")),
            id="whole nodes by name",
        ),
        pytest.param(
            b'{"nodes":{"ITEMS":[{"METADATA":{"Name":"n1"}}]}}',
            ExtenderFilterResult(("n1",)),
            id="whole nodes in any case",
        ),
        pytest.param(b'{"Nodes":{"items":null}}', ExtenderFilterResult(()), id="a list without items"),
        pytest.param(b'{"NodeNames":[]}', ExtenderFilterResult(None, ()), id="no name is not null"),
        pytest.param(
            b'{"Nodes":null,"NodeNames":null,"FailedNodes":null,"Error":null}',
            ExtenderFilterResult(),
            id="null is nothing",
        ),
        pytest.param(
            b'{"FailedNodes":{"n":null}}', ExtenderFilterResult(failed_nodes={"n": ""}), id="a null text"
        ),
        pytest.param(b"null", ExtenderFilterResult(), id="null for everything"),
        pytest.param(
            b'{"Extra":[{"deep":{}}],"NodeNames":["n"]}',
            ExtenderFilterResult(None, ("n",)),
            id="unknown keys",
        ),
        pytest.param(
            b' {"NodeNames":["n"]}\n{"Error":"written second"}',
            ExtenderFilterResult(None, ("n",)),
            id="only the first value counts",
        ),
        pytest.param(
            b'{"Error":"\xff"}',
            ExtenderFilterResult(error="\ufffd"),
            id="bytes that are no UTF-8 are replaced",
        ),
    ],
)
def test_filter_result(text: bytes, result: ExtenderFilterResult) -> None:
    assert ExtenderFilterResult.decode(text) == result


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        pytest.param(
            b'[{"Host":"n1","Score":7},{"host":"n2","SCORE":-3}]',
            (HostPriority("n1", 7), HostPriority("n2", -3)),
            id="entries in any case",
        ),
        pytest.param(b'[{"Host":"n1"}]', (HostPriority("n1", 0),), id="no score is 0"),
        pytest.param(b"null", (), id="null is none"),
    ],
)
def test_host_priorities(text: bytes, entries: tuple[HostPriority, ...]) -> None:
    assert HostPriorityList.decode(text).entries == entries


@pytest.mark.parametrize(
    ("text", "left"),
    [
        pytest.param(
            b'{"nodeNameToMetaVictims":{"n":{"pods":[{"uid":"u1"},{"UID":"u2"}],"numPDBViolations":1}}}',
            {"n": VictimUIDs(("u1", "u2"), 1)},
            id="keys in any case",
        ),
        pytest.param(
            b'{"NodeNameToMetaVictims":{"n":null,"m":{"Pods":null}}}',
            {"n": VictimUIDs(), "m": VictimUIDs()},
            id="null is no victims",
        ),
        pytest.param(b"{}", {}, id="nothing left"),
    ],
)
def test_preemption_result(text: bytes, left: dict[str, VictimUIDs]) -> None:
    assert ExtenderPreemptionResult.decode(text).node_name_to_meta_victims == left


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param(b'{"Error":"no"}', "no", id="an error"),
        pytest.param(b"{}", "", id="none"),
        pytest.param(b"null", "", id="null"),
    ],
)
def test_binding_result(text: bytes, error: str) -> None:
    assert ExtenderBindingResult.decode(text).error == error


@pytest.mark.parametrize(
    ("decode", "text", "message"),
    [
        pytest.param(
            ExtenderFilterResult.decode,
            b'{"NodeNames":"n"}',
            "NodeNames: expected a list, got a string",
            id="a name alone",
        ),
        pytest.param(
            ExtenderFilterResult.decode,
            b'{"nodeNames":["n",3]}',
            "NodeNames[1]: expected a string, got an integer",
            id="a number among names",
        ),
        pytest.param(
            ExtenderFilterResult.decode,
            b'{"FailedNodes":["n"]}',
            "FailedNodes: expected an object, got a list",
            id="failures without reasons",
        ),
        pytest.param(
            ExtenderFilterResult.decode,
            b'{"FailedAndUnresolvableNodes":{"n":true}}',
            "FailedAndUnresolvableNodes[n]: expected a string, got true or false",
            id="an invalid reason",
        ),
        pytest.param(
            ExtenderFilterResult.decode,
            b'{"Nodes":[]}',
            "Nodes: expected an object, got a list",
            id="nodes without a list of the API",
        ),
        pytest.param(
            ExtenderFilterResult.decode,
            b'{"Nodes":{"items":{}}}',
            "Nodes.items: expected a list, got an object",
            id="items that are no list",
        ),
        pytest.param(
            ExtenderFilterResult.decode,
            b'{"Nodes":{"items":[{"metadata":{"name":"n"}},{"metadata":7}]}}',
            "Nodes.items[1].metadata: expected an object, got an integer",
            id="invalid metadata",
        ),
        pytest.param(
            ExtenderFilterResult.decode, b'"n"', "expected an object, got a string", id="a string alone"
        ),
        pytest.param(
            HostPriorityList.decode,
            b'[{"Host":"n","Score":1.5}]',
            "[0].Score: expected an integer, got a number with a fraction",
            id="a score with a fraction",
        ),
        pytest.param(
            HostPriorityList.decode,
            b'[{"Host":"n","Score":9223372036854775808}]',
            "[0].Score: 9223372036854775808 does not fit into 64 bits",
            id="a score beyond 64 bits",
        ),
        pytest.param(
            HostPriorityList.decode, b"{}", "expected a list, got an object", id="no list of scores"
        ),
        pytest.param(
            ExtenderPreemptionResult.decode,
            b'{"NodeNameToMetaVictims":{"n":{"Pods":[{"UID":1}]}}}',
            "NodeNameToMetaVictims[n].Pods[0].UID: expected a string, got an integer",
            id="a number for a uid",
        ),
        pytest.param(
            ExtenderBindingResult.decode,
            b'{"Error":{}}',
            "Error: expected a string, got an object",
            id="an error that is no text",
        ),
        pytest.param(ExtenderBindingResult.decode, b" ", "the response is not JSON: it is empty", id="empty"),
        pytest.param(
            ExtenderFilterResult.decode,
            b'{"NodeNames":["n"',
            "the response is not JSON: Input data was truncated",
            id="cut off",
        ),
        pytest.param(
            ExtenderFilterResult.decode,
            b'{"x":' * 100_000,
            "the response is not JSON: it is nested too deeply",
            id="nested beyond reason",
        ),
    ],
)
def test_malformed(decode: Callable[[bytes], object], text: bytes, message: str) -> None:
    with pytest.raises(MalformedResponseError) as caught:
        decode(text)
    assert str(caught.value) == message


KEYS = st.sampled_from(
    [
        *("Nodes", "items", "metadata", "name", "NodeNames", "nodenames", "FailedNodes", "Error", "Host"),
        *("Score", "NodeNameToMetaVictims", "Pods", "UID", "NumPDBViolations", "n1"),
    ]
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None)
@given(ANYTHING.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=20))
def test_whatever_an_extender_sends_is_read_or_rejected(text: bytes) -> None:
    """Nothing but the one error comes out of the decoders."""
    for message in (ExtenderFilterResult, HostPriorityList, ExtenderPreemptionResult, ExtenderBindingResult):
        with contextlib.suppress(MalformedResponseError):
            assert isinstance(message.decode(text), message)
