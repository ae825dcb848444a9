"""Objects from files: what is taken, and the errors about the rest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bayplan.embedded.server.embedded import open_api
from bayplan.embedded.server.kinds import CONFIG_MAPS, NODES, PODS
from bayplan.embedded.up.manifests import apply, is_definition, read_manifests
from bayplan.errors import DecodeError

POD = """
apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: c
    image: web
"""


def _written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "objects.yaml"
    path.write_text(text)
    return str(path)


def test_objects_are_created_and_changed(tmp_path: Path) -> None:
    api = open_api()
    config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: kube-system}\ndata: {a: '%s'}\n"
    for value in ("1", "2"):
        (documents,) = read_manifests([_written(tmp_path, config % value)])
        assert apply(api, documents) == 1
    assert api.get(CONFIG_MAPS, "c", "kube-system")["data"] == {"a": "2"}


def test_the_items_of_a_list_are_objects_of_their_own(tmp_path: Path) -> None:
    api = open_api()
    text = """
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: a}}
- {apiVersion: v1, kind: Node, metadata: {name: b}}
"""
    (documents,) = read_manifests([_written(tmp_path, text)])
    assert apply(api, documents) == 2
    assert [node["metadata"]["name"] for node in api.list(NODES)] == ["a", "b"]


def test_without_a_namespace_it_is_the_default_one(tmp_path: Path) -> None:
    api = open_api()
    (documents,) = read_manifests([_written(tmp_path, POD)])
    apply(api, documents)
    assert api.get(PODS, "web", "default")["metadata"]["namespace"] == "default"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("- a\n", "objects.yaml:1: this is no API object: it has no fields", id="a list"),
        pytest.param("kind: Pod\n", "it has no apiVersion", id="no apiVersion"),
        pytest.param("apiVersion: v1\n", "it has no kind", id="no kind"),
        pytest.param("a: [\n", "objects.yaml", id="broken YAML"),
    ],
)
def test_what_is_no_object_is_reported_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DecodeError, match=re.escape(message)):
        read_manifests([_written(tmp_path, text)])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            POD.replace("name: web\n", "name: web\n  labels: {app: not valid}\n", 1),
            "metadata.labels",
            id="a field that is not valid",
        ),
        pytest.param(
            POD.replace("image: web", "image: 3"),
            "objects.yaml:9: json: cannot unmarshal number into Go struct field "
            "Container.spec.containers.image of type string",
            id="another type",
        ),
        pytest.param(
            POD.replace("image: web", "imago: web"),
            'objects.yaml:9: unknown field "spec.containers[0].imago"',
            id="an unknown field",
        ),
        pytest.param(
            "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\n",
            "no kind Widget is served in example.com/v1",
            id="an unknown kind",
        ),
        pytest.param(
            POD.replace("name: web\n", "name: web\n  namespace: nowhere\n", 1),
            'namespaces "nowhere" not found',
            id="a namespace that is not there",
        ),
    ],
)
def test_what_the_api_rejects_is_reported_with_file_and_line(tmp_path: Path, text: str, message: str) -> None:
    (documents,) = read_manifests([_written(tmp_path, text)])
    with pytest.raises(DecodeError, match=re.escape(message)) as caught:
        apply(open_api(), documents)
    assert re.match(r".*objects\.yaml:\d+: ", str(caught.value))


def test_definitions_are_found(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    (documents,) = read_manifests([str(root / "examples" / "tour" / "1-platform.yaml")])
    assert [document.content["metadata"]["name"] for document in documents if is_definition(document)] == [
        "podgroups.scheduling.x-k8s.io"
    ]
