"""What one object may take, in the store and in answers about it."""

from __future__ import annotations

from base64 import b64encode

import pytest

from bayplan.embedded.server.documents import MAX_HISTORY_BYTES, MAX_OBJECT_BYTES
from bayplan.embedded.server.embedded import open_api
from bayplan.embedded.server.http.field_validation import MAX_WARNING_CHARACTERS, warning_headers
from bayplan.embedded.server.kinds import CONFIG_MAPS, PODS, REPLICATION_CONTROLLERS, SECRETS, Resource
from bayplan.embedded.server.statuses import MAX_PROBLEMS, StatusError


def test_patches_make_no_object_grow_without_end() -> None:
    """Each patch may be small; the object is rejected, and stays as it was."""
    api = open_api()
    pod = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"a": "b"}, "template": pod}
    api.create(REPLICATION_CONTROLLERS, {"metadata": {"name": "r"}, "spec": spec}, "default")

    def grow(count: int) -> None:
        env = [{"name": f"E{number}", "value": "x" * 1_000_000} for number in range(count)]
        containers = [{"name": "c", "image": "i", "env": env}]
        patch = {"spec": {"template": {"spec": {"containers": containers}}}}
        api.patch(REPLICATION_CONTROLLERS, "r", "default", patch)

    grow(4)
    version = api.store.version
    with pytest.raises(StatusError, match="request is too large") as caught:
        grow(5)
    assert caught.value.code == 413
    assert api.store.version == version
    assert len(api.document(REPLICATION_CONTROLLERS, "r", "default").body) < MAX_OBJECT_BYTES
    grow(0)
    assert api.store.version == version + 1


@pytest.mark.parametrize(
    ("resource", "field", "text"),
    [
        pytest.param(CONFIG_MAPS, "data", "x" * 2**20, id="text"),
        pytest.param(CONFIG_MAPS, "binaryData", b64encode(bytes(2**20)).decode(), id="bytes"),
        pytest.param(SECRETS, "data", b64encode(bytes(2**20)).decode(), id="a secret"),
    ],
)
def test_data_of_one_mebibyte(resource: Resource, field: str, text: str) -> None:
    """Is the most that a ConfigMap or a Secret may have, in all of its entries."""
    api = open_api()
    content = {"metadata": {"name": "c"}, field: {"a": text}}
    api.create(resource, content, "default", dry_run=True)
    content[field]["b"] = "eA=="
    with pytest.raises(StatusError, match="Too long: may not be more than 1048576 bytes") as caught:
        api.create(resource, content, "default", dry_run=True)
    assert caught.value.code == 422


def test_an_answer_names_some_of_many_problems() -> None:
    containers = [{"name": f"NOT-{number}", "image": "i"} for number in range(500)]
    with pytest.raises(StatusError, match="and 400 more") as caught:
        open_api().create(PODS, {"metadata": {"name": "p"}, "spec": {"containers": containers}}, "default")
    assert len(caught.value.status()["details"]["causes"]) == MAX_PROBLEMS


def test_warnings_fit_into_a_header() -> None:
    """Control characters would end the header, or the connection; such warnings are left out."""
    assert warning_headers(["a\r\nSet-Cookie: x", "b\0", "c"]) == {"Warning": '299 - "c"'}
    assert warning_headers(["\n"]) is None
    headers = warning_headers([f'unknown field "f{number}"' for number in range(100_000)])
    assert headers is not None
    assert MAX_WARNING_CHARACTERS / 2 < len(headers["Warning"]) < 3 * MAX_WARNING_CHARACTERS


def test_the_history_of_large_objects_is_short() -> None:
    """A thousand changes of an object of one megabyte do not take a gigabyte."""
    api = open_api()
    api.create(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"k": "x" * 1_000_000}}, "default")
    for number in range(200):
        api.patch(CONFIG_MAPS, "c", "default", {"data": {"n": str(number)}})
    history = api.store.table(CONFIG_MAPS).history
    assert history.read(0) is None
    kept = history.read(history.position_after(history.compacted))
    assert kept is not None
    assert (
        MAX_HISTORY_BYTES / 2 < sum(len(entry.document.body) for entry in kept) < 2 * MAX_HISTORY_BYTES + 1e6
    )
