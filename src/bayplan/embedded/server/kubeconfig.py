"""The entry of an embedded cluster in a kubeconfig: cluster, user and context of one name.

A kubeconfig belongs to its user. An existing file is added to, as kind and minikube do: nothing in it is
touched but entries that bayplan made itself, and its current-context only on request. A file that is not a
kubeconfig is rejected. Changes are made under kubectl's lock, and the file is replaced as a whole.

Entries are recognised by their CA, which names bayplan: no other program makes one. An entry whose cluster is
running belongs to that cluster, whatever its name; one whose cluster is gone may be replaced.

kubectl parses the file, changes it and writes it again: comments and order are lost. Here only the lines of
the changed entries are replaced. If that is not possible (a file in flow style, for example), the whole file
is written again, with all of its fields. In both cases the new text is parsed and compared before it is
written.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from bayplan.api.documents import parse_documents
from bayplan.embedded.server.tls import CA_NAME
from bayplan.errors import ConfigError, DecodeError, InputError
from bayplan.files import create_private, locked, replace_content, warn_if_exposed
from bayplan.net.tls import ClientTLS, TLSSettings

DEFAULT_NAME: Final = "bayplan"
_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.@-]{0,61}[A-Za-z0-9])?")
_KINDS: Final = {"clusters": "cluster", "users": "user", "contexts": "context"}
_EMPTY: Final[Config] = {"apiVersion": "v1", "kind": "Config"}
_MADE_HERE: Final = "# Made by bayplan up, and removed with its last cluster.\n"
"""At the beginning of files that did not exist before. If a user removes this line, the file is kept."""
PROBE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """URL, CA and token of a cluster."""

    url: str
    ca: bytes
    token: str

    @property
    def ca_data(self) -> str:
        return base64.b64encode(self.ca).decode()


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry that was written."""

    path: Path
    name: str
    is_current: bool
    """Whether kubectl uses it without `--context`."""
    ca_data: str


def check(path: Path, name: str | None = None) -> None:
    """Checks whether an entry can be written, before the cluster is started.

    Raises:
        InputError: the file is not a kubeconfig, or cannot be changed, or the name is taken.
    """
    config = _File(path).config
    if name is not None:
        if not _NAME.fullmatch(name):
            raise InputError(f'"{name}" is not a name for a cluster: use letters, digits, "-", "_" and "."')
        _check_free(path, config, name, None)


def add(path: Path, endpoint: Endpoint, name: str | None = None, *, use_context: bool = False) -> Entry:
    """Writes an entry, into a new file or an existing one.

    Args:
        name: of cluster, user and context; without it `bayplan`, or `bayplan-2` … where that is taken.
        use_context: make it the current context, even where there is another. A new file always has one.

    Raises:
        InputError: as for `check`.
        OSError: the file cannot be written, or another program does not release its lock.
    """
    target = _File(path).path
    with locked(target):
        file = _File(path)
        config = file.config
        if name is None:
            name = next(each for each in _names() if _obstacle(config, each, endpoint) is None)
        else:
            _check_free(path, config, name, endpoint)
        file.write(_with_entry(config, endpoint, name, use_context=use_context))
    warn_if_exposed(target, "kubeconfig")
    is_current = use_context or not config.get(CURRENT) or config.get(CURRENT) == name
    return Entry(target, name, is_current, endpoint.ca_data)


def remove(entry: Entry) -> None:
    """Removes an entry, unless another cluster has replaced it; with the last one, a file that was created
    here.

    Raises:
        InputError: the file is not a kubeconfig any more.
        OSError: it cannot be written.
    """
    with locked(entry.path):
        file = _File(entry.path)
        cluster = _item(file.config, "clusters", entry.name).get("cluster") or {}
        if cluster.get("certificate-authority-data") != entry.ca_data:
            return
        config = {**file.config}
        for section in SECTIONS:
            config[section] = [item for item in _items(config, section) if item.get("name") != entry.name]
        if config.get(CURRENT) == entry.name:
            config[CURRENT] = ""
        if file.text.startswith(_MADE_HERE) and not any(config[section] for section in SECTIONS):
            entry.path.unlink()
        else:
            file.write(config)


class _File:
    """A kubeconfig as it is on the disk."""

    def __init__(self, path: Path) -> None:
        self._given = path
        self.path = Path(os.path.realpath(path))
        """With links resolved: the link stays, and its target is changed."""
        if not self.path.parent.is_dir():
            raise InputError(f"there is no directory {self.path.parent}", source=str(path))
        self.exists = self.path.exists()
        if self.exists and not stat.S_ISREG(self.path.stat().st_mode):
            raise self._rejected("it is not a regular file")
        for each in (path, self.path):
            if _may_be_planted(each):
                raise self._rejected("it belongs to another user, in a directory that all users can write to")
        try:
            self.text = self.path.read_bytes().decode("utf-8-sig") if self.exists else _MADE_HERE
        except UnicodeDecodeError:
            raise self._rejected("it is not UTF-8 text") from None
        self.config: Config = self._parse()

    def write(self, config: Config) -> None:
        content = changed_text(self.text, self.config, config).encode()
        if self.exists:
            replace_content(self.path, content)
        else:
            create_private(self.path, content)

    def _parse(self) -> Config:
        try:
            documents = [document.content for document in parse_documents(self.text.encode())]
        except DecodeError as error:
            raise self._rejected(str(error)) from None
        if not documents:
            return {}
        if len(documents) > 1:
            raise self._rejected("it has several documents")
        (config,) = documents
        if not isinstance(config, dict) or not _is_config(config):
            raise self._rejected("its kind is not Config")
        for section in SECTIONS:
            items = config.get(section) or []
            if not isinstance(items, list) or not all(_is_item(item, section) for item in items):
                raise self._rejected(f"its {section} are not a list of named entries")
        if not isinstance(config.get(CURRENT) or "", str):
            raise self._rejected(f"its {CURRENT} is not a name")
        return config

    def _rejected(self, problem: str) -> InputError:
        return InputError(
            f"this is not a kubeconfig that can be added to: {problem}", source=str(self._given)
        )


def _is_config(config: Config) -> bool:
    """client-go accepts a file without kind as a kubeconfig; then it must have the fields of one."""
    if config.get("apiVersion", "v1") != "v1":
        return False
    return config["kind"] == "Config" if "kind" in config else any(section in config for section in SECTIONS)


def _is_item(item: object, section: str) -> bool:
    return (
        isinstance(item, dict)
        and isinstance(item.get("name"), str)
        and isinstance(item.get(_KINDS[section]) or {}, dict)
    )


def _items(config: Config, section: str) -> list[Config]:
    return config.get(section) or []


def _item(config: Config, section: str, name: str) -> Config:
    return next((item for item in _items(config, section) if item["name"] == name), {})


def _with_entry(config: Config, endpoint: Endpoint, name: str, *, use_context: bool) -> Config:
    """Fields that a user added to the context of an earlier run, such as a namespace, stay."""
    context = {"namespace": "default", **(_item(config, "contexts", name).get("context") or {})}
    new = {
        "clusters": {"server": endpoint.url, "certificate-authority-data": endpoint.ca_data},
        "users": {"token": endpoint.token},
        "contexts": {**context, "cluster": name, "user": name},
    }
    changed = {**(config or _EMPTY)}
    for section, kind in _KINDS.items():
        others = [item for item in _items(config, section) if item["name"] != name]
        changed[section] = [*others, {"name": name, kind: new[section]}]
    if use_context or not config.get(CURRENT):
        changed[CURRENT] = name
    return changed


def _names() -> chain[str]:
    return chain((DEFAULT_NAME,), (f"{DEFAULT_NAME}-{number}" for number in count(2)))


def _check_free(path: Path, config: Config, name: str, endpoint: Endpoint | None) -> None:
    obstacle = _obstacle(config, name, endpoint)
    if obstacle is not None:
        raise InputError(f'the name "{name}" is taken: {obstacle}; choose another --name', source=str(path))


def _obstacle(config: Config, name: str, endpoint: Endpoint | None) -> str | None:
    """Why an entry of this name cannot be written; None if it can."""
    if not any(_item(config, section, name) for section in SECTIONS):
        return None
    cluster: Config = _item(config, "clusters", name).get("cluster") or {}
    url, ca_data = str(cluster.get("server", "")), str(cluster.get("certificate-authority-data", ""))
    if endpoint is not None and (ca_data == endpoint.ca_data or url == endpoint.url):
        return None  # our own, from before; or our port now
    ca = _own_ca(ca_data)
    if ca is None:
        return "it is the name of another cluster, user or context"
    return f"that cluster is running at {url}" if is_running(url, ca) else None


def _own_ca(data: str) -> bytes | None:
    """The CA of a cluster that bayplan created; None for others."""
    try:
        pem = base64.b64decode(data, validate=True)
        names: list[Any] = x509.load_pem_x509_certificate(pem).subject.get_attributes_for_oid(
            NameOID.COMMON_NAME
        )
    except (binascii.Error, ValueError):
        return None
    return pem if [each.value for each in names] == [CA_NAME] else None


def is_running(url: str, ca: bytes) -> bool:
    """Whether a server with a certificate of this CA answers; one that is too busy to is running, too."""
    try:
        parts = urlsplit(url)
        address = (parts.hostname or "", parts.port or 443)
        context = ClientTLS(TLSSettings(ca_data=ca)).context()
        with socket.create_connection(address, PROBE_SECONDS) as connection:
            try:
                context.wrap_socket(connection, server_hostname=parts.hostname).close()
            except TimeoutError:
                return True
    except (ConfigError, OSError, ValueError):  # an SSLError is an OSError
        return False
    return True


def _may_be_planted(path: Path) -> bool:
    """Rejects files or links of other users in world-writable directories; the kernel does not follow such
    links."""
    try:
        owner, directory = path.lstat().st_uid, path.parent.stat()
    except FileNotFoundError:
        return False
    is_shared = directory.st_mode & stat.S_ISVTX and directory.st_mode & stat.S_IWOTH
    return bool(is_shared) and owner not in (os.geteuid(), directory.st_uid)


SECTIONS: Final = ("clusters", "users", "contexts")
CURRENT: Final = "current-context"

_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Config = dict[str, Any]
_Change = tuple[int, int, list[str]]
"""First line, end, and the new lines."""


def changed_text(text: str, before: Config, after: Config) -> str:
    """The text of `before`, changed so that it parses as `after`."""
    for candidate in _candidates(text, before, after):
        if _says(candidate, after):
            return candidate
    raise AssertionError("JSON says what it is made of")


def _candidates(text: str, before: Config, after: Config) -> Iterator[str]:
    if not text.lstrip().startswith("{"):
        lines = _changed_lines(text, before, after)
        if lines is not None:
            yield lines
        yield _dumped(after)
    yield json.dumps(after, indent=2, ensure_ascii=False) + "\n"


def _says(text: str, wanted: Config) -> bool:
    try:
        return [document.content for document in parse_documents(text.encode())] == [wanted]
    except DecodeError:
        return False


def _changed_lines(text: str, before: Config, after: Config) -> str | None:
    """None if lines of the text cannot be changed one by one."""
    root = yaml.compose(text, Loader=_Loader)  # no deeper than what `before` was read from, so not too deep
    if root is None:
        return text + _dumped(after)
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        return None
    if text and not text.endswith("\n"):
        text += "\n"
    lines = re.split(r"(?<=\n)", text)
    changes: list[_Change] = []
    there = {key.value: (key, value) for key, value in root.value}
    for name in (*SECTIONS, CURRENT):
        if before.get(name) == after.get(name):
            continue
        if name not in there:
            changes.append((len(lines), len(lines), [_dumped({name: after[name]})]))
            continue
        key, value = there[name]
        first, last = key.start_mark.line, _last_line(value)
        if name in SECTIONS and isinstance(value, yaml.SequenceNode) and value.value and not value.flow_style:
            changes += _item_changes(value, before[name], after[name])
            if after[name]:
                continue
        changes = [change for change in changes if not first <= change[0] <= last + 1]
        changes.append((first, last + 1, [_dumped({name: after[name]})]))
    for start, end, new in sorted(changes, key=lambda change: change[:2], reverse=True):
        lines[start:end] = new
    return "".join(lines)


def _item_changes(section: yaml.SequenceNode, before: list[Any], after: list[Any]) -> Iterator[_Change]:
    """Removes items that are not wanted any more, and adds new ones at the end."""
    for node, item in zip(section.value, before, strict=True):
        if item not in after:
            yield node.start_mark.line, _last_line(node) + 1, []
    added = [item for item in after if item not in before]
    if added:
        end = _last_line(section.value[-1]) + 1
        indent = " " * section.start_mark.column
        yield end, end, [indent + line for line in _dumped(added).splitlines(keepends=True)]


def _last_line(node: yaml.Node) -> int:
    """The last line of a value; the parser returns only where the next one begins."""
    if isinstance(node, yaml.CollectionNode) and node.value and not node.flow_style:
        child = node.value[-1]
        return _last_line(child[1] if isinstance(node, yaml.MappingNode) else child)
    mark = node.end_mark
    return int(mark.line if mark.column or mark.line == node.start_mark.line else mark.line - 1)


def _dumped(value: object) -> str:
    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=1_000_000)
    return text
