"""Whatever is sent: an object is taken, or rejected with a Status. Nothing else happens."""

from __future__ import annotations

import random
from typing import Any

import pytest

from bayplan.api.kinds import KINDS
from bayplan.embedded.server.embedded import open_api
from bayplan.embedded.server.kinds import BUILT_IN, Resource
from bayplan.embedded.server.schema.types import Type, TypeMismatchError, clean, type_of
from bayplan.embedded.server.tables.printer import Printer
from bayplan.errors import APIError

ROUNDS = 60
NAMES = ("a", "x.io/gpu", "cpu", "", "A b", "kubernetes.io/hostname", "-", "é")
TEXTS = (*NAMES, "1", "100m", "1Gi", "50%", "Exists", "In", "2027-01-15T08:00:00Z")
HARD_TO_HIT = frozenset(
    {
        "CronJob", "CustomResourceDefinition", "DaemonSet", "Deployment", "Job", "PersistentVolume",
        "PersistentVolumeClaim", "Pod", "ReplicaSet", "ReplicationController", "ResourceSlice", "Service",
        "StatefulSet",
    }
)  # fmt: skip
"""Kinds with so many rules that a random object hardly ever keeps them all."""


def made(of: Type, rng: random.Random, depth: int = 0) -> Any:
    """A value of a type, as wild as its type allows."""
    if of.fields is not None:
        names = [name for name, field in of.fields.items() if field.required or rng.random() < 0.3]
        return {} if depth > 6 else {name: made(of.fields[name].type, rng, depth + 1) for name in names}
    match of.name:
        case "list":
            assert of.items is not None
            return [made(of.items, rng, depth + 1) for _ in range(rng.randrange(3))]
        case "map":
            assert of.items is not None
            names = rng.sample(NAMES, rng.randrange(3))
            return {name: made(of.items, rng, depth + 1) for name in names}
        case "boolean":
            return rng.random() < 0.5
        case "int32" | "int64":
            return rng.choice((-1, 0, 1, 80, 70_000, 2**31 - 1))
        case "quantity":
            return rng.choice(("0", "1", "-1", "100m", "1.5Gi", "0.0001"))
        case "int-or-string":
            return rng.choice((1, -1, "50%", "x"))
        case "number":
            return 1.5
        case "microtime":
            return rng.choice(("2027-01-15T08:00:00.000000Z", *TEXTS))
        case "any":
            return rng.choice(({}, [], "x", 1, {"a": {"b": []}}))
    return rng.choice((*of.choices, *TEXTS))


@pytest.mark.parametrize("resource", BUILT_IN, ids=lambda resource: resource.full_name)
def test_any_object_is_taken_or_rejected(resource: Resource) -> None:
    """Created, changed, printed and deleted."""
    rng = random.Random(resource.full_name)
    of = type_of(resource)
    api = open_api(clock=lambda: 1.8e9, seed=1)
    printer = Printer(api.time)
    taken = 0
    for number in range(ROUNDS):
        content = made(of, rng)
        if rng.random() < 0.8:
            content["metadata"] = {"name": f"o{number}", "labels": {"a": "b"}}
        try:
            cleaned, _ = clean(content, of)
            stored = api.create(resource, cleaned, "default")
        except (APIError, TypeMismatchError):
            continue
        taken += 1
        name, namespace = stored["metadata"]["name"], stored["metadata"].get("namespace", "")
        document = api.document(resource, name, namespace)
        printer.table(resource, [document], "Object")
        kind = KINDS.get(resource.kind)
        if kind is not None and kind.group == resource.group:
            assert document.record(kind.record).name == name, "the scheduler can read it"
        others = {field: part for field, part in made(of, rng).items() if field != "metadata"}
        try:
            changed, _ = clean({**stored, **others}, of)
            api.update(resource, changed, namespace)
        except (APIError, TypeMismatchError):
            pass
        api.delete(resource, name, namespace)
    assert taken or resource.kind in HARD_TO_HIT
