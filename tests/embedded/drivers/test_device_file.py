"""The file of `bayplan up --devices`."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayplan.embedded.drivers.device_file import expanded, parse_devices, read_devices
from bayplan.errors import DecodeError

EXAMPLE = Path(__file__).parents[3] / "examples" / "gpus.yaml"


def parse(text: str) -> None:
    parse_devices(f"drivers:\n{text}".encode(), "file")


def test_the_example_is_valid() -> None:
    devices = read_devices(EXAMPLE)
    names = [driver.name for driver in devices.drivers]
    assert names == [f"{name}.example.com" for name in ("gpu", "nic", "mig", "storage", "driver")]
    storage = devices.driver("storage.example.com")
    assert storage is not None
    assert (storage.all_nodes, storage.binding_seconds, storage.binding_result) == (True, 3.0, "Ready")


def test_entries_are_repeated_and_filled_in() -> None:
    entry = "{name: 'gpu-{i}', count: 2, attributes: {id: {string: '{node}/{i}'}}}"
    text = f"drivers: [{{driver: a, devices: [{entry}]}}]"
    (driver,) = parse_devices(text.encode(), "file").drivers
    assert expanded(driver.devices, "n1") == [
        {"name": "gpu-0", "attributes": {"id": {"string": "n1/0"}}},
        {"name": "gpu-1", "attributes": {"id": {"string": "n1/1"}}},
    ]


def test_labels_select_the_nodes_with_the_devices() -> None:
    (driver,) = parse_devices(b'drivers:\n- driver: a\n  nodeSelector: {gpu: "yes"}\n', "file").drivers
    assert driver.is_on({"gpu": "yes", "zone": "a"})
    assert not driver.is_on({"zone": "a"})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("  []", "drivers: Required value: at least one driver"),
        ("  {}", "drivers: must be a list"),
        ("- {}", "drivers[0].driver: Required value"),
        ("- driver: a_b\n  devices: [{name: x}]", 'drivers[0].driver: Invalid value: "a_b": a lowercase RFC'),
        ("- driver: a\n  device: []", "drivers[0].device: unknown field"),
        ("- driver: 5", "drivers[0].driver: must be a string"),
        ("- driver: a\n- driver: a", 'drivers[0].driver: Duplicate value: "a"'),
        ("- driver: a\n  devices: [5]", "drivers[0].devices[0]: must be an object"),
        ("- driver: a\n  devices: {}", "drivers[0].devices: must be a list"),
        ("- driver: a\n  devices: [{name: G}]", 'drivers[0].devices[0].name: Invalid value: "G"'),
        ("- driver: a\n  devices: [{name: g, count: 0}]", "drivers[0].devices[0].count: must be a number"),
        (
            "- driver: a\n  devices: [{name: g, count: 2}]",
            "drivers[0].devices[0].name: must contain {i}, because count is 2",
        ),
        ("- driver: a\n  devices: [{name: g}, {name: g}]", 'drivers[0].devices: Duplicate value: "g"'),
        (
            "- driver: a\n  devices: [{name: g, attributes: {m: {string: x, int: 1}}}]",
            "drivers[0].devices[0].attributes[m]: Invalid value",
        ),
        (
            "- driver: a\n  devices: [{name: g, attributes: {m: {color: x}}}]",
            "drivers[0].devices[0].attributes.m.color: unknown field",
        ),
        (
            "- driver: a\n  devices: [{name: g, attributes: {m: x}}]",
            "drivers[0].devices[0].attributes.m: json: cannot unmarshal string",
        ),
        (
            "- driver: a\n  devices: [{name: g, capacity: {m: {value: much}}}]",
            "drivers[0].devices[0].capacity.m.value: quantities must match",
        ),
        (
            "- driver: a\n  devices: [{name: g, taints: [{key: k, effect: Bad}]}]",
            'drivers[0].devices[0].taints[0].effect: Unsupported value: "Bad"',
        ),
        (
            "- driver: a\n  sharedCounters: [{name: s}]",
            "drivers[0].sharedCounters[0].counters: Required value",
        ),
        ("- driver: a\n  nodeSelector: {x: true}", "drivers[0].nodeSelector.x: must be a string"),
        ("- driver: a\n  nodeSelector: {'a b': x}", "drivers[0].nodeSelector.a b: name part must consist"),
        ("- driver: a\n  nodeSelector: {x: y}\n  allNodes: true", "drivers[0].nodeSelector: must not be set"),
        ("- driver: a\n  allNodes: 1", "drivers[0].allNodes: must be true or false"),
        ("- driver: a\n  binding: 5", "drivers[0].binding: must be an object"),
        ("- driver: a\n  binding: {afterSeconds: -1}", "drivers[0].binding.afterSeconds: must be a number"),
        ("- driver: a\n  binding: {result: Maybe}", "drivers[0].binding.result: must be Ready or Failed"),
        ("- driver: a\n  binding: {later: 1}", "drivers[0].binding.later: unknown field"),
    ],
)
def test_what_is_wrong_is_named_with_its_field(text: str, problem: str) -> None:
    with pytest.raises(DecodeError) as caught:
        parse(text)
    assert str(caught.value).startswith(f"file: {problem}"), str(caught.value)


@pytest.mark.parametrize("text", [b"", b"- a", b"drivers: []\n---\ndrivers: []"])
def test_a_file_is_one_document(text: bytes) -> None:
    with pytest.raises(DecodeError, match="one YAML document"):
        parse_devices(text, "file")
