"""Kubeconfig files: read for a client, and added to by `bayplan up`."""

from __future__ import annotations

import base64
import random
import tempfile
from pathlib import Path
from typing import Any, Final

import msgspec

from bayplan.client.kubeconfig import load_access
from bayplan.client.requests import Connections
from bayplan.errors import BayplanError
from tests.fuzz.mutation import Mutator

NO_CERTIFICATE: Final = base64.b64encode(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")


class KubeconfigFile(msgspec.Struct, frozen=True):
    data: bytes
    context: str = ""


class Kubeconfigs:
    """A file that cannot be used is a BayplanError with the reason, and nothing else."""

    name = "kubeconfigs"
    input_type = KubeconfigFile

    def make(self, rng: random.Random) -> KubeconfigFile:
        mutator = Mutator(rng)
        data = mutator.encode([mutator.document(_kubeconfig())])
        return KubeconfigFile(data, rng.choice(("", "", "a", "b", "c", "é")))

    def run(self, given: KubeconfigFile) -> None:
        with tempfile.TemporaryDirectory(prefix="bayplan-fuzz-") as directory:
            file = Path(directory) / "config"
            file.write_bytes(given.data)
            try:
                access = load_access(str(file), context=given.context)
                Connections(access)
            except BayplanError:
                pass


def _kubeconfig() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "a",
        "preferences": {},
        "clusters": [
            {"name": "a", "cluster": {"server": "https://127.0.0.1:6443/prefix", "tls-server-name": "x"}},
            {
                "name": "b",
                "cluster": {
                    "server": "http://[::1]:80",
                    "certificate-authority-data": NO_CERTIFICATE.decode(),
                    "insecure-skip-tls-verify": False,
                    "proxy-url": "http://user:secret@127.0.0.1:3128",
                },
            },
        ],
        "users": [
            {"name": "a", "user": {"token": "t", "username": "u", "password": "p"}},
            {
                "name": "b",
                "user": {
                    "client-certificate-data": NO_CERTIFICATE.decode(),
                    "client-key-data": NO_CERTIFICATE.decode(),
                    "as": "someone",
                    "as-groups": ["g"],
                },
            },
            {
                "name": "c",
                "user": {
                    "exec": {
                        "apiVersion": "client.authentication.k8s.io/v1",
                        "command": "/bin/false",
                        "args": ["x"],
                        "env": [{"name": "A", "value": "b"}],
                        "interactiveMode": "Never",
                        "provideClusterInfo": True,
                    }
                },
            },
        ],
        "contexts": [
            {"name": "a", "context": {"cluster": "a", "user": "a", "namespace": "default"}},
            {"name": "b", "context": {"cluster": "b", "user": "b"}},
            {"name": "c", "context": {"cluster": "a", "user": "c"}},
        ],
    }
