"""etcd and kube-apiserver on loopback: a cluster without nodes, kubelets or controllers.

What a controller would do is left out deliberately: pods stay Pending after they are bound, nothing taints a
node. Users are tokens in a file; RBAC is on, with the bootstrap roles that the API server makes itself.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Self

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from bayplan.client.access import Access
from bayplan.net.tls import TLSSettings
from conformance.harness.process import Process, free_ports, wait_until
from conformance.harness.programs import Programs

ADMIN: Final = "admin"
KUBE_SCHEDULER: Final = "system:kube-scheduler"
NOBODY: Final = "nobody"

NOT_ADMITTED: Final = (
    "ServiceAccount",
    "TaintNodesByCondition",
    "StorageObjectInUseProtection",
    "Priority",
    "RuntimeClass",
)
"""Admission that needs controllers (no service account would ever exist, every node would stay tainted, no
claim would ever go), or that forbids tests to set spec.priority and spec.overhead."""

AUDIT_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


class ControlPlane:
    """A real API server and its store. To be used in a `with` block.

    Args:
        programs: where they are.
        directory: for data, certificates, tokens, kubeconfigs and logs; empty at first.
        users: further users, with their groups.
        audit: whether each request is written down (`requests`). It costs the server time.
        etcd: another one than the plain one.
        options: further flags of kube-apiserver.
        not_admitted: admission plugins that are off.
    """

    def __init__(
        self,
        programs: Programs,
        directory: Path,
        *,
        users: dict[str, Sequence[str]] | None = None,
        audit: bool = False,
        etcd: Path | None = None,
        options: Sequence[str] = (),
        not_admitted: Sequence[str] = NOT_ADMITTED,
    ) -> None:
        self.programs = programs
        self.directory = directory
        self.audit_log = directory / "audit.jsonl" if audit else None
        self._users = {ADMIN: ("system:masters",), KUBE_SCHEDULER: (), NOBODY: (), **(users or {})}
        self._options = options
        self._not_admitted = not_admitted
        self._etcd_program = programs.etcd if etcd is None else etcd
        self._client_port, self._peer_port, self.port = free_ports(3)
        self.url = f"https://127.0.0.1:{self.port}"
        self.etcd: Process | None = None
        self.apiserver: Process | None = None

    def __enter__(self) -> Self:
        self._prepare()
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    # Starting and stopping

    def start(self) -> None:
        """Starts both, with whatever is in the store."""
        try:
            self.start_etcd()
            self.start_apiserver()
            self.wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        self.stop_apiserver()
        if self.etcd is not None:
            self.etcd.stop()
            self.etcd = None

    def _prepare(self) -> None:
        lines = [
            ",".join([token_of(user), user, str(number), '"' + ",".join(groups) + '"'])
            for number, (user, groups) in enumerate(self._users.items())
        ]
        (self.directory / "tokens.csv").write_text("\n".join(lines) + "\n")
        (self.directory / "audit-policy.json").write_text(json.dumps(AUDIT_POLICY))
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        (self.directory / "accounts.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )
        for user in self._users:
            self.kubeconfig(user).write_text(json.dumps(self._kubeconfig(user)))

    def start_etcd(self) -> None:
        client, peer = (f"http://127.0.0.1:{port}" for port in (self._client_port, self._peer_port))
        self.etcd = Process(
            "etcd",
            [
                self._etcd_program,
                "--data-dir", self.store,
                "--listen-client-urls", client,
                "--advertise-client-urls", client,
                "--listen-peer-urls", peer,
                "--unsafe-no-fsync",
                "--quota-backend-bytes", str(8 << 30),
            ],
            self.directory / "etcd.log",
        )  # fmt: skip

    def start_apiserver(self) -> None:
        """Starts it, from the main thread; it is ready about three seconds later."""
        key = self.directory / "accounts.key"
        audit: list[str | Path] = []
        if self.audit_log is not None:
            policy = self.directory / "audit-policy.json"
            audit = ["--audit-policy-file", policy, "--audit-log-path", self.audit_log]
        self.apiserver = Process(
            "kube-apiserver",
            [
                self.programs.kube_apiserver,
                "--etcd-servers", f"http://127.0.0.1:{self._client_port}",
                "--bind-address", "127.0.0.1",
                "--secure-port", str(self.port),
                "--cert-dir", self.directory / "certificates",
                "--service-cluster-ip-range", "10.0.0.0/24",
                "--service-account-issuer", "https://bayplan.conformance",
                "--service-account-key-file", key,
                "--service-account-signing-key-file", key,
                "--token-auth-file", self.directory / "tokens.csv",
                "--authorization-mode", "Node,RBAC",
                "--endpoint-reconciler-type", "none",
                "--disable-admission-plugins", ",".join(self._not_admitted),
                *audit,
                *self._options,
            ],
            self.directory / "kube-apiserver.log",
        )  # fmt: skip

    def wait_until_ready(self) -> None:
        wait_until(self._is_ready, "kube-apiserver is ready")

    def stop_apiserver(self) -> None:
        if self.apiserver is not None:
            # SIGKILL: after SIGTERM it would wait for all watches to end.
            self.apiserver.kill()
            self.apiserver = None

    def _is_ready(self) -> bool:
        for process in (self.etcd, self.apiserver):
            if process is not None:
                process.check()
        try:
            context = ssl.create_default_context(cafile=str(self.ca_file))
            with urllib.request.urlopen(f"{self.url}/readyz", context=context, timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            # No certificate yet, no listener yet, or not ready yet (HTTPError is one too).
            return False

    # Using it

    @property
    def store(self) -> Path:
        """etcd's data directory. It can be copied and restored while etcd is stopped."""
        return self.directory / "etcd"

    @property
    def ca_file(self) -> Path:
        """The certificate that the API server made for itself."""
        return self.directory / "certificates" / "apiserver.crt"

    def access(self, user: str = ADMIN) -> Access:
        return Access(self.url, tls=TLSSettings(ca_file=str(self.ca_file)), token=token_of(user))

    def kubeconfig(self, user: str = ADMIN) -> Path:
        return self.directory / f"{user.replace(':', '-')}.kubeconfig"

    def _kubeconfig(self, user: str) -> dict[str, Any]:
        cluster = {"server": self.url, "certificate-authority": str(self.ca_file)}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "real", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": token_of(user)}}],
            "contexts": [{"name": "real", "context": {"cluster": "real", "user": user}}],
            "current-context": "real",
        }

    def kubectl(self, *arguments: str, user: str = ADMIN, given: str | None = None) -> str:
        """What kubectl prints.

        Raises:
            subprocess.CalledProcessError: it failed; `stderr` has the reason.
        """
        command = [str(self.programs.kubectl), "--kubeconfig", str(self.kubeconfig(user)), *arguments]
        return subprocess.run(command, input=given, capture_output=True, text=True, check=True).stdout

    def requests(self, user: str) -> Iterator[dict[str, Any]]:
        """All requests of a user that the API server has answered so far, as its audit log has them."""
        assert self.audit_log is not None, "made with audit=True"
        for line in self.audit_log.read_text().splitlines():
            entry = json.loads(line)
            if entry["user"].get("username") == user:
                yield entry

    def forbidden(self, user: str) -> list[str]:
        """Requests of a user that RBAC has forbidden, with the reason."""
        return [
            f"{entry['verb']} {entry['requestURI']}: {entry['responseStatus'].get('message', '')}"
            for entry in self.requests(user)
            if entry.get("responseStatus", {}).get("code") == 403
        ]


def token_of(user: str) -> str:
    return "token-of-" + user.replace(":", "-")
