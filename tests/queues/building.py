"""Pods and configurations for tests of capacity queues."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bayplan.api.meta import OWN_API_VERSION
from bayplan.api.pod import Pod
from bayplan.testing.builders import make_pod


def queued_pod(name: str, queue: str, cpu: int = 1, app: str = "", user: str = "", **fields: Any) -> Pod:
    """A pod of an application in a queue below the root."""
    annotations = dict(fields.pop("annotations", {}))
    if user:
        annotations["yunikorn.apache.org/user.info"] = f'{{"user": "{user}"}}'
    labels = {"queue": f"root.{queue}", "applicationId": app or f"app-{queue}"}
    return make_pod(name, cpu=cpu, labels=labels, annotations=annotations, **fields)


def queues_file(folder: Path, text: str) -> Path:
    """A queues.yaml with this content."""
    path = folder / "queues.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def queues_config(path: Path, dialect: str = "bayplan") -> str:
    """A configuration with the capacity queues of a file."""
    settings = f"{{file: {path}, dialect: {dialect}}}"
    return f"---\napiVersion: {OWN_API_VERSION}\nkind: BayplanConfiguration\nqueues: {settings}\n"
