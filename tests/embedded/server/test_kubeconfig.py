"""A cluster's entry in a kubeconfig: what is added, what stays, and what is rejected."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from bayplan.embedded.server import kubeconfig
from bayplan.embedded.server.embedded import EmbeddedServer
from bayplan.embedded.server.kubeconfig import Endpoint
from bayplan.embedded.server.tls import certificates_in
from bayplan.errors import InputError
from bayplan.files import LockedError, locked

USERS = """\
# The company's clusters.
apiVersion: v1
kind: Config
preferences: {colors: true}   # never written here
clusters:
- name: prod
  cluster:
    server: https://prod.example:6443   # do not touch
    x-unknown: {a: [1, 2]}
# between the sections
contexts:
  - context: {cluster: prod, user: me}
    name: prod
current-context: prod
users:
- name: me
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: login
      env: null
      args:
      - --note
      - |
        two
        lines
# the end
"""


@pytest.fixture
def endpoint(tmp_path: Path) -> Endpoint:
    return make_endpoint(tmp_path / "data")


def make_endpoint(directory: Path, url: str = "https://127.0.0.1:1") -> Endpoint:
    directory.mkdir()
    return Endpoint(url, certificates_in(directory).ca.read_bytes(), "secret")


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def names(config: Any) -> dict[str, list[str]]:
    return {
        section: [item["name"] for item in config[section]] for section in ("clusters", "users", "contexts")
    }


def test_a_new_file_has_a_current_context(tmp_path: Path, endpoint: Endpoint) -> None:
    path = tmp_path / "config"
    entry = kubeconfig.add(path, endpoint)
    config = read(path)
    assert names(config) == {"clusters": ["bayplan"], "users": ["bayplan"], "contexts": ["bayplan"]}
    assert config["current-context"] == entry.name == "bayplan"
    assert entry.is_current
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    kubeconfig.remove(entry)
    assert [file.name for file in tmp_path.iterdir()] == ["data"]


def test_an_existing_file_keeps_every_line(tmp_path: Path, endpoint: Endpoint) -> None:
    """And its current-context and mode. When the entry is removed the file is as it was, to the byte."""
    path = tmp_path / "config"
    path.write_text(USERS)
    path.chmod(0o640)
    entry = kubeconfig.add(path, endpoint)
    lines = iter(path.read_text().splitlines())
    assert [line for line in USERS.splitlines() if line not in lines] == []  # all of them, in this order
    before, config = yaml.safe_load(USERS), read(path)
    assert names(config) == {
        "clusters": ["prod", "bayplan"],
        "users": ["me", "bayplan"],
        "contexts": ["prod", "bayplan"],
    }
    assert (config["current-context"], entry.is_current) == ("prod", False)
    assert config["clusters"][1]["cluster"] == {
        "server": endpoint.url,
        "certificate-authority-data": base64.b64encode(endpoint.ca).decode(),
    }
    assert (config["clusters"][0], config["users"][0]) == (before["clusters"][0], before["users"][0])
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    kubeconfig.remove(entry)
    assert path.read_text() == USERS


def test_a_flag_sets_the_current_context(tmp_path: Path, endpoint: Endpoint) -> None:
    path = tmp_path / "config"
    path.write_text(USERS)
    entry = kubeconfig.add(path, endpoint, use_context=True)
    assert entry.is_current
    assert read(path)["current-context"] == "bayplan"
    kubeconfig.remove(entry)
    assert read(path)["current-context"] == ""


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="an empty file"),
        pytest.param("# mine\n", id="a comment"),
        pytest.param("apiVersion: v1\nkind: Config\n", id="nothing but its kind"),
        pytest.param("clusters: []\nusers: null\ncontexts:\n", id="without kind, with empty lists"),
        pytest.param("kind: Config\nclusters: [{name: a, cluster: {server: https://a}}]\n", id="flow style"),
        pytest.param(json.dumps(yaml.safe_load(USERS), indent=4), id="JSON"),
        pytest.param(USERS.replace("\n", "\r\n"), id="lines of Windows"),
        pytest.param(USERS.removesuffix("\n# the end\n"), id="no newline at the end"),
        pytest.param("---\n" + USERS + "...\n", id="a document with its marks"),
        pytest.param(
            'kind: Config\nclusters:\n- name: "y"\n  cluster: &c {server: //a}\n- {name: b, cluster: *c}\n',
            id="anchors, and a name that is a truth value elsewhere",
        ),
    ],
)
def test_every_form_of_a_kubeconfig_keeps_its_fields(tmp_path: Path, endpoint: Endpoint, text: str) -> None:
    path = tmp_path / "config"
    path.write_bytes(text.encode())
    before = yaml.safe_load(text) or {}
    entry = kubeconfig.add(path, endpoint)
    config = read(path)
    assert all(section[-1] == "bayplan" for section in names(config).values())
    for name in ("clusters", "users", "contexts"):
        assert config[name][:-1] == (before.get(name) or [])
    kubeconfig.remove(entry)
    left = read(path)
    assert {key: value for key, value in left.items() if value} | {"kind": "Config"} == {
        key: value for key, value in before.items() if value
    } | {"kind": "Config", **({"apiVersion": "v1"} if not before else {})}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("shopping: [milk]\n", "its kind is not Config", id="other YAML"),
        pytest.param("apiVersion: v1\nkind: Pod\n", "its kind is not Config", id="another object"),
        pytest.param(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: Config\n",
            "its kind is not",
            id="another version",
        ),
        pytest.param("just a text", "its kind is not Config", id="text"),
        pytest.param("- a\n- b\n", "its kind is not Config", id="a list"),
        pytest.param("kind: Config\n---\nkind: Config\n", "several documents", id="two documents"),
        pytest.param("kind: Config\nclusters: {a: b}\n", "its clusters are not a list", id="no list"),
        pytest.param("kind: Config\nusers: [{user: {}}]\n", "its users are not a list", id="no names"),
        pytest.param("kind: [", "this is not YAML", id="no YAML"),
        pytest.param(b"\xff\xfe\x00", "not UTF-8", id="a binary file"),
    ],
)
def test_what_is_no_kubeconfig_is_left_alone(
    tmp_path: Path, endpoint: Endpoint, text: str | bytes, problem: str
) -> None:
    path = tmp_path / "precious"
    content = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(content)
    for write in (lambda: kubeconfig.check(path), lambda: kubeconfig.add(path, endpoint)):
        with pytest.raises(InputError, match=problem):
            write()
    assert path.read_bytes() == content
    assert sorted(file.name for file in tmp_path.iterdir()) == ["data", "precious"]


def test_no_directory_is_made(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no directory"):
        kubeconfig.check(tmp_path / "not" / "there")
    assert list(tmp_path.iterdir()) == []


def test_a_link_stays_a_link(tmp_path: Path, endpoint: Endpoint) -> None:
    """The target of the link is changed: users may keep their files elsewhere."""
    target, link = tmp_path / "dotfile", tmp_path / "config"
    target.write_text(USERS)
    link.symlink_to(target)
    kubeconfig.add(link, endpoint)
    assert link.is_symlink()
    assert "bayplan" in target.read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make files of others")
@pytest.mark.parametrize("planted", ["file", "link"])
def test_what_others_may_have_planted_is_rejected(tmp_path: Path, endpoint: Endpoint, planted: str) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    path = shared / "config"
    if planted == "link":
        (tmp_path / "mine").write_text(USERS)
        path.symlink_to(tmp_path / "mine")
    else:
        path.write_text(USERS)
    os.chown(path, 12345, 12345, follow_symlinks=False)
    with pytest.raises(InputError, match="belongs to another user"):
        kubeconfig.add(path, endpoint)


def test_anothers_name_is_not_taken(tmp_path: Path, endpoint: Endpoint) -> None:
    path = tmp_path / "config"
    path.write_text(USERS.replace("prod", "bayplan"))
    with pytest.raises(InputError, match='the name "bayplan" is taken: it is the name of another cluster'):
        kubeconfig.add(path, endpoint, "bayplan")
    assert kubeconfig.add(path, endpoint).name == "bayplan-2"


@pytest.mark.parametrize("name", ["", "a b", "-x", "$(id)", "x" * 64, "a\n"])
def test_a_name_has_no_surprises(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="is not a name for a cluster"):
        kubeconfig.check(tmp_path / "config", name)


def test_a_running_cluster_keeps_its_entry(tmp_path: Path) -> None:
    """A second one in the same file gets a name of its own; the entry of one that is gone is replaced."""
    path = tmp_path / "config"

    async def scenario() -> None:
        async with EmbeddedServer() as first:
            one = await asyncio.to_thread(first.write_kubeconfig, path)
            async with EmbeddedServer() as second:
                two = await asyncio.to_thread(second.write_kubeconfig, path)
                assert (one.name, two.name, two.is_current) == ("bayplan", "bayplan-2", False)
                with pytest.raises(InputError, match=f"running at {first.url}"):
                    await asyncio.to_thread(kubeconfig.add, path, second.endpoint, "bayplan")
            assert names(read(path))["users"] == ["bayplan", "bayplan-2"]
        async with EmbeddedServer() as third:
            assert (await asyncio.to_thread(third.write_kubeconfig, path)).name == "bayplan"
            (cluster,) = (item for item in read(path)["clusters"] if item["name"] == "bayplan")
            assert cluster["cluster"]["server"] == third.url

    asyncio.run(scenario())


def test_what_a_user_added_to_its_context_stays(tmp_path: Path, endpoint: Endpoint) -> None:
    path = tmp_path / "config"
    kubeconfig.add(path, endpoint)
    path.write_text(path.read_text().replace("namespace: default", "namespace: shop"))
    kubeconfig.add(path, endpoint)
    (context,) = read(path)["contexts"]
    assert context["context"] == {"namespace": "shop", "cluster": "bayplan", "user": "bayplan"}


def test_an_entry_that_has_become_anothers_is_left(tmp_path: Path, endpoint: Endpoint) -> None:
    path = tmp_path / "config"
    entry = kubeconfig.add(path, endpoint)
    kubeconfig.add(path, make_endpoint(tmp_path / "other"), "bayplan")
    text = path.read_text()
    kubeconfig.remove(entry)
    assert path.read_text() == text


def test_kubectls_lock_is_respected(
    tmp_path: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config"
    monkeypatch.setattr("bayplan.files.LOCK_SECONDS", 0.0)
    (tmp_path / "config.lock").touch()
    with pytest.raises(LockedError, match="another program is changing the file"), locked(path, seconds=0):
        pass
    (tmp_path / "config.lock").unlink()
    with locked(path):
        assert (tmp_path / "config.lock").exists()
    kubeconfig.add(path, endpoint)
    assert not (tmp_path / "config.lock").exists()
