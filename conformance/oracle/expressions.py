"""Random device selectors: expressions of every type from templates, wrong ones included.

`{int}` in a template stands for an expression of that type. Now and then another type takes its place, and
characters of the finished text are changed, so that errors are compared too.
"""

from __future__ import annotations

import gzip
import json
import re
from functools import cache
from typing import Final

from conformance.differential.drawing import Draw, Raw
from conformance.harness.programs import HERE

_RECORDED: Final = HERE / "cel/evaluations.jsonl.gz"
_GRAMMAR: Final = HERE / "oracle/grammar.txt"
_HEADER: Final = re.compile(r"\[(\w+)\]")
_HOLE: Final = re.compile(r"\{([a-z]{2,})\}")
_DRIVER: Final = "gpu.example.com"

_WRONG: Final = 0.03
"""How often another type takes the place of the right one."""
_CHARACTERS: Final = "()[]{}.,?:!+-*/%<>=&|\"'`\\ \n\tax0é$@#;^~_u"


@cache
def _grammar() -> dict[str, tuple[list[str], list[str]]]:
    """For each type: the expressions without parts, and the templates with parts."""
    grammar: dict[str, tuple[list[str], list[str]]] = {}
    for line in _GRAMMAR.read_text(encoding="utf-8").splitlines():
        if header := _HEADER.fullmatch(line):
            leaves, templates = grammar[header[1]] = ([], [])
        elif line and not line.startswith("#"):
            (templates if _HOLE.search(line) else leaves).append(line)
    return grammar


@cache
def _recorded() -> tuple[Raw, ...]:
    with gzip.open(_RECORDED, "rt") as lines:
        return tuple(map(json.loads, lines))


class Expressions:
    """Draws evaluations: an expression, and the device that it is evaluated with."""

    def __init__(self, seed: int) -> None:
        self._draw = Draw(seed)

    def evaluation(self) -> Raw:
        draw = self._draw
        if draw.maybe(0.15):
            recorded = draw.choice(_recorded())
            line = {key: recorded[key] for key in ("driver", "device", "expression")}
            return {**line, "expression": self._changed(line["expression"])}
        expression = self._expression("bool", draw.choice((1, 1, 2, 2, 3, 4)))
        if draw.maybe(0.05):
            expression = self._changed(expression)
        return {"expression": expression, "driver": _DRIVER, "device": self._device()}

    def _expression(self, name: str, depth: int) -> str:
        draw = self._draw
        if draw.maybe(_WRONG):
            name = draw.choice(list(_grammar()))
        leaves, templates = _grammar()[name]
        if not templates or (leaves and (depth <= 0 or draw.maybe(0.15))):
            return draw.choice(leaves)
        return _HOLE.sub(lambda found: self._operand(found[1], depth - 1), draw.choice(templates))

    def _operand(self, name: str, depth: int) -> str:
        text = self._expression(name, depth)
        return f"({text})" if self._draw.maybe(0.4) and re.search(r"[ ?]", text) else text

    def _changed(self, text: str) -> str:
        draw = self._draw
        for _ in range(draw.choice((1, 1, 1, 2))):
            at = draw.randrange(len(text) + 1)
            end = min(len(text), at + draw.choice((0, 1, 1, 1, 2, 5)))
            text = text[:at] + draw.choice(("", "", draw.choice(_CHARACTERS), text[at:end] * 2)) + text[end:]
        return text

    def _device(self) -> Raw:
        draw = self._draw
        attributes = {
            "model": {"string": draw.choice(("a100", "", "Ünï", "H100-80GB"))},
            "index": {"int": draw.choice((0, 3, -1, 2**63 - 1))},
            "ecc": {"bool": draw.maybe(0.5)},
            "driverVersion": {"version": draw.choice(("1.2.3", "2.0.0-rc.1", "1.10.0+b"))},
            "zero": {"int": 0},
            f"{_DRIVER}/negative": {"int": -5},
            "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
            "other.example.org/size": {"int": 7},
        }
        if draw.maybe(0.02):
            attributes["odd"] = draw.choice(({}, {"version": "1.0"}, {"string": "a", "int": 2}))
        capacity = {
            "memory": {"value": draw.choice(("80Gi", "1", "0", "1.5", "100G"))},
            "power": {"value": "350500m"},
            "other.example.org/bw": {"value": "100G"},
        }
        names = [name for name in attributes if draw.maybe(0.9)]
        device: Raw = {
            "name": "gpu-0",
            "attributes": {name: attributes[name] for name in names},
            "capacity": {name: value for name, value in capacity.items() if draw.maybe(0.9)},
        }
        if draw.maybe(0.3):
            device["allowMultipleAllocations"] = draw.maybe(0.5)
        return device
