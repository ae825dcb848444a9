"""The exact error messages for clients."""

from __future__ import annotations

import pytest

from bayplan.api.event import Event
from bayplan.api.meta import Object
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.api.storage import CSIStorageCapacity, PersistentVolumeClaim, StorageClass
from bayplan.simulate.memory import api_errors
from bayplan.testing.builders import make_pod


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param(Pod, "pods", id="a kind of the core group has no group in its name"),
        pytest.param(Node, "nodes", id="nor has a node"),
        pytest.param(PersistentVolumeClaim, "persistentvolumeclaims", id="long names are run together"),
        pytest.param(StorageClass, "storageclasses.storage.k8s.io", id="a class has es, and its group"),
        pytest.param(CSIStorageCapacity, "csistoragecapacities.storage.k8s.io", id="y becomes ies"),
        pytest.param(Event, "events.events.k8s.io", id="events are of their own group"),
    ],
)
def test_resource_name(kind: type[Object], name: str) -> None:
    assert api_errors.resource_name(kind) == name


def test_not_found() -> None:
    assert str(api_errors.not_found(Pod, "a")) == 'pods "a" not found'


def test_already_exists() -> None:
    assert str(api_errors.already_exists(Node, "n1")) == 'nodes "n1" already exists'


def test_another_uid_names_both() -> None:
    stored = make_pod("a", namespace="x", uid="new")
    assert str(api_errors.another_uid(Pod, stored, "old")) == (
        'Operation cannot be fulfilled on pods "a": StorageError: invalid object, Code: 4, '
        "Key: /registry/pods/x/a, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: "
        "UID in precondition: old, UID in object meta: new"
    )
