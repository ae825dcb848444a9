"""Pods of a snapshot that share a template: each is decoded as if it were the only one."""

from __future__ import annotations

import msgspec
import pytest

from bayplan.answers.sources import snapshot
from bayplan.answers.sources.snapshot import PodDecoder, PodWithRawSpec
from bayplan.api.pod import Pod, PodSpec
from bayplan.errors import InputError

CONTAINERS = '"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]'
TOKEN = '"volumes":[{"name":"data"},{"name":"kube-api-access-%s"}]'
TWO_SPECS = {
    "same node": ('"nodeName":"n1"', '"nodeName":"n1"'),
    "other node": ('"nodeName":"n1"', '"nodeName":"n2"'),
    "one without node": ('"nodeName":"n1"', '"hostNetwork":false'),
    "empty node": ('"nodeName":""', '"nodeName":"n1"'),
    "other spelling": ('"nodeName":"n1"', '"nodeName" : "n2"'),
    "spaces": ('"nodeName": "n1"', '"nodeName":  "n2"'),
    "escaped": ('"nodeName":"n\\u0031"', '"nodeName":"n\\u0032"'),
    "escaped quote": ('"nodeName":"n\\"1"', '"nodeName":"n\\"2"'),
    "named twice": ('"nodeName":"n1","nodeName":"n1"', '"nodeName":"n2","nodeName":"n1"'),
    "elsewhere": ('"other":{"nodeName":"n1"}', '"other":{"nodeName":"n2"}'),
    "elsewhere first": (
        '"other":{"nodeName":"n1"},"nodeName":"n1"',
        '"other":{"nodeName":"n2"},"nodeName":"n1"',
    ),
    "in a text": (
        '"schedulerName":"\\"nodeName\\":\\"a\\""',
        '"schedulerName":"\\"nodeName\\":\\"b\\""',
    ),
    "token": ('"nodeName":"n1",' + TOKEN % "aaaaa", '"nodeName":"n2",' + TOKEN % "bbbbb"),
    "token first": (TOKEN % "aaaaa" + ',"nodeName":"n1"', TOKEN % "bbbbb" + ',"nodeName":"n2"'),
    "token mounted": (
        TOKEN % "aaaaa" + ',"other":[{"name":"kube-api-access-aaaaa"}]',
        TOKEN % "bbbbb" + ',"other":[{"name":"kube-api-access-bbbbb"}]',
    ),
    "token in another name": (
        TOKEN % "aaaaa" + ',"resourceClaims":[{"name":"kube-api-access-aaaaa-x"}]',
        TOKEN % "bbbbb" + ',"resourceClaims":[{"name":"kube-api-access-bbbbb-x"}]',
    ),
    "token only mounted": (
        '"other":[{"name":"kube-api-access-aaaaa"}]',
        '"other":[{"name":"kube-api-access-bbbbb"}]',
    ),
    "other scheduler": ('"nodeName":"n1","schedulerName":"a"', '"nodeName":"n1","schedulerName":"b"'),
}


def raw_pod(spec: str, *, name: str = "p", status: str = "{}") -> str:
    return f'{{"metadata":{{"name":"{name}"}},"spec":{{{CONTAINERS},{spec}}},"status":{status}}}'


def decode(decoder: PodDecoder, text: str) -> Pod:
    return decoder.decode(msgspec.json.decode(text, type=PodWithRawSpec))


@pytest.mark.parametrize("specs", TWO_SPECS.values(), ids=TWO_SPECS)
def test_decodes_as_without_templates(specs: tuple[str, str]) -> None:
    decoder = PodDecoder()
    for text in map(raw_pod, (*specs, *reversed(specs))):
        assert decode(decoder, text) == msgspec.json.decode(text, type=Pod)


@pytest.mark.parametrize("spec", [b'"nodeName":"\xff"', b'"volumes":[{"name":"kube-api-access-\xff"}]'])
def test_invalid_utf8(spec: bytes) -> None:
    with pytest.raises(UnicodeDecodeError):
        PodDecoder().decode(PodWithRawSpec(spec=msgspec.Raw(b"{" + spec + b"}")))


def test_spec_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []

    class Decoder:
        def decode(self, text: bytes) -> object:
            decoded.append(text)
            return msgspec.json.decode(text, type=PodSpec)

    monkeypatch.setattr(snapshot, "_decoder", Decoder())
    decoder = PodDecoder()
    for i in range(9):
        spec = f'"nodeName":"n{i}",' + TOKEN % f"abcd{i}"
        pod = decode(decoder, raw_pod(spec))
        assert (pod.spec.node_name, pod.spec.volumes[1].name) == (f"n{i}", f"kube-api-access-abcd{i}")
    assert len(decoded) == 1


@pytest.mark.parametrize(
    ("second", "problem"),
    [
        (raw_pod('"nodeName":"n2"', name=""), "no name"),
        (raw_pod('"nodeName":"n2"', status='{"resources":{"requests":{"cpu":"x"}}}'), "status.resources"),
        (raw_pod('"nodeName":"n2","overhead":{"cpu":"x"}'), "spec.overhead"),
    ],
)
def test_every_pod_is_checked(second: str, problem: str) -> None:
    decoder = PodDecoder()
    decode(decoder, raw_pod('"nodeName":"n1"'))
    with pytest.raises(InputError, match=problem):
        decode(decoder, second)
