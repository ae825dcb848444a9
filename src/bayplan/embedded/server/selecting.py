"""Label selectors and field selectors of a request.

labelSelector=app=web,tier in (front,back),!canary
fieldSelector=spec.nodeName=n1,status.phase!=Failed
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bayplan.api.cluster_api import Change
from bayplan.api.selector_text import parse_selector
from bayplan.api.selectors import EVERYTHING, Selector
from bayplan.embedded.server.documents import Document, Entry
from bayplan.embedded.server.kinds import RESOURCE_SLICES, Resource
from bayplan.embedded.server.statuses import bad_request
from bayplan.embedded.server.views import stored_field
from bayplan.errors import SelectorError


def parse_label_selector(text: str) -> Selector:
    """A label selector as kubectl writes it.

    Raises:
        StatusError: it cannot be read; 400.
    """
    try:
        return parse_selector(text)
    except SelectorError as error:
        raise bad_request(error.problem) from None


@dataclass(frozen=True, slots=True)
class Selection:
    """The objects of a resource that a request selects."""

    resource: Resource
    labels: Selector = EVERYTHING
    fields: tuple[tuple[str, str, bool], ...] = ()
    """Path, value, and whether the field has to equal it (or not)."""
    namespace: str = ""
    name: str = ""

    @property
    def is_everything(self) -> bool:
        return self.labels.is_empty and not self.fields and not self.namespace and not self.name

    def matches(self, document: Document) -> bool:
        if self.namespace and not document.key.startswith(f"{self.namespace}/"):
            return False
        if self.name and document.key.rpartition("/")[2] != self.name:
            return False
        if self.labels.is_empty and not self.fields:
            return True
        labels, fields, _ = document.facts(self.resource)
        return self.labels.matches(labels) and all(
            (fields[path] == wanted) is equal for path, wanted, equal in self.fields
        )

    def seen(self, entry: Entry) -> tuple[Change, Document] | None:
        """A change as seen by a watcher that selects only these objects; None for nothing.

        An object that no longer matches is a deletion: in its previous state, with the new version.
        """
        now = entry.change is not Change.DELETED and self.matches(entry.document)
        before = entry.previous is not None and self.matches(entry.previous)
        if now:
            return (Change.MODIFIED if before else Change.ADDED), entry.document
        if not before:
            return None
        if entry.change is Change.DELETED:
            return Change.DELETED, entry.document
        assert entry.previous is not None
        return Change.DELETED, entry.previous.at_version(entry.document.version)


def parse_selection(resource: Resource, labels: str, fields: str, namespace: str) -> Selection:
    """The selectors of a request.

    Raises:
        StatusError: one of them cannot be read, or names a field that cannot be selected; 400.
    """
    wanted = []
    name = ""
    for path, text, equal in _field_terms(fields):
        if path == "metadata.name" and equal:
            name = text
        elif path == "metadata.namespace" and equal and resource.namespaced:
            namespace = namespace or text
        elif path in resource.selectable or path in ("metadata.name", "metadata.namespace"):
            wanted.append((stored_field(resource, path), text, equal))
        elif resource.selectable:
            where = (
                f" for {resource.api_version}, Kind={resource.kind}" if resource == RESOURCE_SLICES else ""
            )
            raise bad_request(f"field label not supported{where}: {path}")
        else:
            known = '"metadata.name", "metadata.namespace"'
            raise bad_request(f'"{path}" is not a known field selector: only {known}')
    return Selection(resource, parse_label_selector(labels), tuple(wanted), namespace, name)


def _field_terms(text: str) -> list[tuple[str, str, bool]]:
    terms = []
    for term in re.split(r"(?<!\\),", text):
        if not term:
            continue
        found = re.fullmatch(r"([^=!]+)(==|!=|=)(.*)", term, re.DOTALL)
        if found is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        path, operator, wanted = found.groups()
        terms.append((path, re.sub(r"\\([\\,=])", r"\1", wanted), operator != "!="))
    return terms
