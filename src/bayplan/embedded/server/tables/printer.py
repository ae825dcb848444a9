"""Objects as rows of a table, for `kubectl get`.

The server renders the cells, so that kubectl can print kinds that it does not know. Columns with a priority
above 0 are shown with `-o wide`. Custom resources have their own columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from bayplan.api.meta import Content
from bayplan.embedded.server.documents import Document
from bayplan.embedded.server.kinds import Resource
from bayplan.embedded.server.tables import other_rows, pod_rows
from bayplan.embedded.server.tables.rows import Row, Rows, age, age_of, at_path, columns, name_of
from bayplan.embedded.server.views import from_storage

_NAME_AND_AGE: Final = Rows(
    columns("Name", "Age"), lambda content, now: [name_of(content), age_of(content, now)]
)
_ROWS: Final[Mapping[Resource, Rows]] = {
    **other_rows.ROWS,
    **pod_rows.ROWS,
    **other_rows.GROUP_ROWS,
    **other_rows.STORAGE_ROWS,
    **pod_rows.WORKLOAD_ROWS,
}


class Printer:
    """Makes tables. `clock` is wall time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock

    def table(
        self, resource: Resource, documents: Sequence[Document], include: str, with_columns: bool = True
    ) -> dict[str, Any]:
        """A table with a row for each object; `include` says how much of the object is included."""
        rows = self._rows(resource)
        now = self._clock()
        made = []
        for document in documents:
            content = document.parse()
            row: dict[str, Any] = {"cells": rows.cells(content, now)}
            if include == "Metadata":
                row["object"] = {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": content["metadata"],
                }
            elif include == "Object":
                row["object"] = from_storage(resource, content)
            made.append(row)
        meta = {"resourceVersion": str(documents[-1].version)} if len(documents) == 1 else {}
        return {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": meta,
            "columnDefinitions": rows.columns if with_columns else [],
            "rows": made,
        }

    def _rows(self, resource: Resource) -> Rows:
        if resource.columns:
            return _custom_rows(resource)
        return _ROWS.get(resource.storage, _NAME_AND_AGE)


def _custom_rows(resource: Resource) -> Rows:
    """The additionalPrinterColumns of a definition, after the name."""
    definitions = [
        *columns("Name"),
        *(
            {
                "name": column["name"],
                "type": column.get("type", "string"),
                "format": column.get("format", ""),
                "description": column.get("description", ""),
                "priority": column.get("priority", 0),
            }
            for column in resource.columns
        ),
    ]

    def cells(content: Content, now: float) -> Row:
        row: Row = [name_of(content)]
        for column in resource.columns:
            found = at_path(content, column["jsonPath"])
            if found is None:
                row.append(None)
            elif column.get("type") == "date":
                row.append(age(found, now))
            elif column.get("type") in ("integer", "number", "boolean"):
                row.append(found)
            else:
                row.append(str(found))
        return row

    return Rows(definitions, cells)
