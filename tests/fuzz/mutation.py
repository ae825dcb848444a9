"""Mutation of documents, from a random generator that the caller seeds.

A document is what JSON can hold. Most mutations keep its structure and replace a value by one that programs
get wrong: numbers at the edges of their types, times that do not exist, quantities that overflow. A few
change the structure, and a few the bytes.
"""

from __future__ import annotations

import json
import random
from typing import Any, Final

import yaml

NUMBERS: Final = (
    0,
    -1,
    1,
    2**31 - 1,
    2**31,
    -(2**31) - 1,
    2**53 + 1,
    2**63 - 1,
    2**63,
    -(2**63),
    2**64,
    10**30,
    1.5,
    -0.0,
    1e308,
)
QUANTITIES: Final = (
    "0",
    "-1",
    "1m",
    "0.0001",
    "7Ei",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "99999999999999999999Ei",
    "1e400",
    "1E-400",
    "1.5.5",
    "Ki",
    "+5",
    " 5",
    "5 ",
    "٣",
)
TIMES: Final = (
    "2025-02-29T00:00:00Z",
    "0001-01-01T00:00:00Z",
    "0000-01-01T00:00:00Z",
    "2300-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999999Z",
    "2026-01-01T24:00:00Z",
    "2026-01-01T00:00:60Z",
    "2026-01-01T00:00:00+25:00",
    "2026-01-01",
)
TEXTS: Final = (
    "",
    " ",
    "a",
    "A_b",
    "-",
    "..",
    "/",
    "%",
    "%s%n",
    "*",
    "é",
    "\x00",
    "\r\n",
    "\ud800",
    "\u202e",
    "null",
    "a" * 64,
    "a" * 300,
    "a/b/c",
    "kubernetes.io/hostname",
    "x.example/gpu",
    "In",
    "NotIn",
    "Exists",
    "50%",
    "-50%",
    "1000000000%",
    "(a+)+$",
    "default",
    "n0",
    "w0",
)
KEYS: Final = ("", "a", "cpu", "memory", "metadata", "spec", "status", "$patch", "kind", "\x00", "a" * 300)
MAX_DEPTH: Final = 300
"""Of nesting that is put into a document: what Python's own writers can still write."""
MAX_OPENED: Final = 100_000
"""Brackets that are put into bytes. Parsers that recurse crash before that."""
DAMAGE: Final = (b"\xff\xfe", b"\xef\xbb\xbf", b"\x00", b"\t", b"---\n", b"\r", b"%YAML 9\n")
OPENINGS: Final = (b"[", b"{", b"{a: ", b"- ", b'{"a":', b"&a [*a, ", b"!!python/none ")


class Mutator:
    """Changes documents; the same generator state makes the same changes."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def value(self) -> Any:
        """A value out of place."""
        rng = self.rng
        return rng.choice(
            (
                None,
                True,
                False,
                {},
                [],
                rng.choice(NUMBERS),
                rng.choice(TEXTS),
                rng.choice(QUANTITIES),
                rng.choice(TIMES),
                {rng.choice(KEYS): rng.choice(TEXTS)},
                [rng.choice(NUMBERS)],
            )
        )

    def scalar(self, old: Any) -> Any:
        """Another value for a field, mostly of the same type."""
        rng = self.rng
        if rng.random() < 0.2:
            return self.value()
        if isinstance(old, bool):
            return not old
        if isinstance(old, int | float):
            return rng.choice((*NUMBERS, old + 1, -old))
        if isinstance(old, str):
            if old[:4].isdigit() and "T" in old:
                return rng.choice(TIMES)
            if old[:1].isdigit() and rng.random() < 0.8:
                return rng.choice(QUANTITIES)
            return rng.choice((*TEXTS, old + old, old.upper(), old[:-1]))
        return self.value()

    def document(self, document: Any, *, times: int | None = None) -> Any:
        """A changed copy of a document."""
        changed = json.loads(json.dumps(document))
        holder = [changed]
        for _ in range(self.rng.choice((1, 1, 2, 4)) if times is None else times):
            self._mutate_once(holder)
        return holder[0]

    def _mutate_once(self, holder: list[Any]) -> None:
        rng = self.rng
        places = _places(holder)
        leaves = [(parent, key) for parent, key in places if not isinstance(parent[key], dict | list)]
        if leaves and rng.random() < 0.6:
            parent, key = rng.choice(leaves)
            parent[key] = self.scalar(parent[key])
            return
        parent, key = rng.choice(places)
        old = parent[key]
        match rng.randrange(7):
            case 0 if parent is not holder:
                del parent[key]
            case 1 if isinstance(parent, dict):
                parent[rng.choice((*KEYS, f"{key}s"))] = parent.pop(key)
            case 2 if isinstance(old, list) and old:
                old.extend(old * rng.choice((1, 3, 50)))
            case 3 if isinstance(old, dict):
                old[rng.choice(KEYS)] = self.value()
            case 4:
                other, place = rng.choice(places)
                parent[key] = json.loads(json.dumps(other[place]))
            case 5 if rng.random() < 0.1:
                parent[key] = nested(rng.randrange(MAX_DEPTH), rng.random() < 0.5)
            case _:
                parent[key] = self.value()

    def encode(self, documents: list[Any]) -> bytes:
        """Documents as YAML or JSON, now and then with damaged bytes."""
        rng = self.rng
        if rng.random() < 0.5:
            whole: Any = documents
            if rng.random() < 0.7:
                whole = documents[0] if len(documents) == 1 else _listed(documents)
            data = json.dumps(whole, ensure_ascii=rng.random() < 0.7).encode(errors="surrogatepass")
        else:
            data = _yaml(documents, rng)
        return self.damage(data) if rng.random() < 0.15 else data

    def damage(self, data: bytes) -> bytes:
        """The same with bytes changed, cut, repeated or nested."""
        rng = self.rng
        at = rng.randrange(len(data) + 1)
        match rng.randrange(6):
            case 0:
                return data[:at]
            case 1:
                return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
            case 2:
                return data[:at] + data[at : at + 200] * 20 + data[at:]
            case 3:
                opened = rng.choice((3, 100, 2000, MAX_OPENED))
                return data[:at] + rng.choice(OPENINGS) * opened + data[at:]
            case 4:
                return data[:at] + rng.choice(DAMAGE) + data[at:]
            case _:
                return bytes(rng.randrange(256) for _ in range(rng.randrange(40)))


def nested(depth: int, as_list: bool) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value] if as_list else {"a": value}
    return value


def _listed(documents: list[Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": documents}


def _places(holder: list[Any]) -> list[tuple[Any, Any]]:
    """Every place in a document that holds a value: container and key."""
    found: list[tuple[Any, Any]] = []
    left: list[Any] = [holder]
    while left:
        container = left.pop()
        keys = list(container) if isinstance(container, dict) else range(len(container))
        for key in keys:
            found.append((container, key))
            if isinstance(container[key], dict | list):
                left.append(container[key])
    return found


def _yaml(documents: list[Any], rng: random.Random) -> bytes:
    style = rng.choice((None, True, False))
    try:
        text = yaml.safe_dump_all(documents, default_flow_style=style, allow_unicode=rng.random() < 0.5)
    except (RecursionError, yaml.YAMLError):
        text = json.dumps(documents)  # JSON is YAML, and our writer has limits that readers must not rely on
    return text.encode(errors="surrogatepass")
