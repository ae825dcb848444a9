"""Files that only their owner may read: keys, tokens, kubeconfigs."""

from __future__ import annotations

import os
import secrets
from base64 import b64encode
from pathlib import Path

import yaml


def write_private(path: Path, content: bytes) -> None:
    """Writes a file with mode 0600, all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def token_in(directory: Path) -> str:
    """The token of a data directory; made where there is none."""
    path = directory / "token"
    if not path.exists():
        write_private(path, f"{secrets.token_urlsafe(32)}\n".encode())
    return path.read_text(encoding="ascii").strip()


def write_kubeconfig(path: Path, *, server: str, ca: Path, token: str) -> None:
    """A kubeconfig for the server, with everything in it."""
    name = "bayplan"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": name,
                "cluster": {
                    "server": server,
                    "certificate-authority-data": b64encode(ca.read_bytes()).decode(),
                },
            }
        ],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
        "current-context": name,
    }
    write_private(path, yaml.safe_dump(config, sort_keys=False).encode())
