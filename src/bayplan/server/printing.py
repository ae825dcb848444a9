"""Objects as rows of a table, for `kubectl get`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bayplan.server.documents import Document
from bayplan.server.kinds import Resource


class Printer:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock

    def table(
        self, resource: Resource, documents: Sequence[Document], include: str, with_columns: bool = True
    ) -> dict[str, Any]:
        return {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": {},
            "columnDefinitions": [
                {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}
            ]
            if with_columns
            else [],
            "rows": [
                {"cells": [document.key.rpartition("/")[2]], "object": document.parse()}
                for document in documents
            ],
        }
