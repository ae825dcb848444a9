"""Plugins of Volcano's Jobs: what they add to the pods of a job, and the objects that they make for it.

    env                       the index of the pod in its task
    svc                       host names, a headless Service, a NetworkPolicy, and a ConfigMap with the hosts
    ssh                       a Secret with a key, mounted in all containers
    pytorch, tensorflow, mpi  the variables and ports by which processes of the framework find each other

As in Volcano, the plugins of frameworks need svc, and mpi needs ssh (`spec.py` adds them).

https://volcano.sh/en/docs/vcjob/
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from bayplan.api.meta import Content
from bayplan.controllers.volcano.spec import (
    ENV,
    JOB_NAME,
    JOB_NAMESPACE,
    MPI,
    PLUGINS,
    PYTORCH,
    SSH,
    SVC,
    TENSORFLOW,
    JobSpec,
    TaskSpec,
    pod_name,
)

_HOSTS_PATH: Final = "/etc/volcano"
_SSH_PATH: Final = "/root/.ssh"
_SSH_FILES: Final = ("id_rsa", "id_rsa.pub", "authorized_keys", "config")


class _Flags:
    """The arguments of a plugin, as Go's package flag reads them."""

    def __init__(self, arguments: Sequence[str] | None) -> None:
        self._values: dict[str, str] = {}
        left = iter(arguments or ())
        for argument in left:
            name, has_value, value = argument.lstrip("-").partition("=")
            if not argument.startswith("-") or not name:
                return
            self._values[name] = value if has_value else next(left, "") if name in _WITH_VALUE else "true"

    def text(self, name: str, default: str) -> str:
        return self._values.get(name, default)

    def number(self, name: str, default: int) -> int:
        value = self._values.get(name, "")
        return int(value) if value.isascii() and value.isdecimal() and len(value) < 6 else default

    def is_set(self, name: str, *, default: bool = False) -> bool:
        value = self._values.get(name, "")
        return value.lower() in ("1", "t", "true") if value else default


_WITH_VALUE: Final = frozenset(
    {
        *("master", "worker", "port", "ps", "chief", "evaluator"),
        *("wait-master-timeout", "wait-master-image"),
        *("ssh-key-file-path", "ssh-private-key", "ssh-public-key", "ssh-port"),
    }
)
"""Arguments that take the next one as their value if they have none."""


def hosts_of(job: str, task: TaskSpec) -> list[str]:
    """The host names of the pods of a task. A host name in the template is that of all of them."""
    # svc.go: GenerateHosts
    pod_spec = task.template["spec"]
    domain = pod_spec.get("subdomain") or job
    if pod_spec.get("hostname"):
        return [f"{pod_spec['hostname']}.{domain}"] if task.replicas else []
    return [f"{pod_name(job, task, number)}.{domain}" for number in range(task.replicas)]


# Pods


def change_pod(pod: Content, job: str, spec: JobSpec, task: TaskSpec, index: int) -> None:
    """Adds what the plugins of a job add to one of its pods.

    Args:
        job: the name of the job.
    """
    for name in PLUGINS:
        if name in spec.plugins:
            _ON_PODS[name](pod, job, spec, task, index, _Flags(spec.plugins[name]))


def _containers(pod: Content, *kinds: str) -> Iterator[Content]:
    """The containers of a pod, as copies that may be changed: the template is shared."""
    for kind in kinds or ("containers", "initContainers"):
        if pod["spec"].get(kind):
            pod["spec"][kind] = [dict(each) for each in pod["spec"][kind]]
            yield from pod["spec"][kind]


def _append(content: Content, name: str, items: Iterable[Content]) -> None:
    content[name] = [*(content.get(name) or ()), *items]


def _open_port(container: Content, name: str, port: int) -> None:
    if all(each.get("containerPort") != port for each in container.get("ports") or ()):
        _append(container, "ports", [{"name": name, "containerPort": port, "protocol": "TCP"}])


def _env(pod: Content, job: str, spec: JobSpec, task: TaskSpec, index: int, flags: _Flags) -> None:
    for container in _containers(pod):
        names = ("VK_TASK_INDEX", "VC_TASK_INDEX")
        _append(container, "env", [{"name": name, "value": str(index)} for name in names])


def _svc(pod: Content, job: str, spec: JobSpec, task: TaskSpec, index: int, flags: _Flags) -> None:
    pod_spec, hosts = pod["spec"], hosts_name(job)
    pod_spec["hostname"] = pod_spec.get("hostname") or pod["metadata"]["name"]
    pod_spec["subdomain"] = pod_spec.get("subdomain") or job
    variables = [
        {"name": key, "valueFrom": {"configMapKeyRef": {"name": hosts, "key": key}}}
        for each in spec.tasks
        for key in (f"VC_{_variable(each)}_HOSTS", f"VC_{_variable(each)}_NUM")
    ]
    has_variables = flags.is_set("inject-hosts-env", default=True)
    _append(pod_spec, "volumes", [{"name": hosts, "configMap": {"name": hosts}}])
    for container in _containers(pod):
        _append(container, "env", variables if has_variables else ())
        _append(container, "volumeMounts", [{"name": hosts, "mountPath": _HOSTS_PATH}])


def _ssh(pod: Content, job: str, spec: JobSpec, task: TaskSpec, index: int, flags: _Flags) -> None:
    name, path = secret_name(job), flags.text("ssh-key-file-path", _SSH_PATH)
    items = [{"key": each, "path": f".ssh/{each}"} for each in _SSH_FILES]
    mode = 0o600 if path == _SSH_PATH else 0o644
    secret = {"secretName": name, "items": items, "defaultMode": mode}
    _append(pod["spec"], "volumes", [{"name": name, "secret": secret}])
    for container in _containers(pod):
        _append(container, "volumeMounts", [{"name": name, "mountPath": path, "subPath": ".ssh"}])


def _pytorch(pod: Content, job: str, spec: JobSpec, task: TaskSpec, index: int, flags: _Flags) -> None:
    master, worker = flags.text("master", "master"), flags.text("worker", "worker")
    port, leader = flags.number("port", 23456), spec.task(master)
    if leader is None:
        return
    address = (hosts_of(job, leader) or [f"{pod_name(job, leader, 0)}.{job}"])[0]
    size = sum(each.replicas for each in spec.tasks if each.name in (master, worker))
    values = {"MASTER_ADDR": address, "MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
    if task.name in (master, worker):
        values["RANK"] = str(index + 1) if task.name == worker else "0"
    for container in _containers(pod, "containers"):
        _open_port(container, "pytorchjob-port", port)
        _append(container, "env", [{"name": name, "value": value} for name, value in values.items()])
    if task.name == worker and flags.is_set("wait-master-enabled"):
        timeout = flags.number("wait-master-timeout", 300)
        image = flags.text("wait-master-image", "busybox:1.36.1")
        script = f"for i in $(seq {timeout}); do nc -z {address} {port} && exit 0; sleep 1; done; exit 1"
        waiting = {"name": "wait-for-master", "image": image, "command": ["sh", "-c", script]}
        _append(pod["spec"], "initContainers", [waiting])


def _tensorflow(pod: Content, job: str, spec: JobSpec, task: TaskSpec, index: int, flags: _Flags) -> None:
    if spec.replicas == 1:
        return
    port = flags.number("port", 2222)
    roles = {flags.text(role, role): role for role in ("ps", "worker", "chief", "evaluator")}
    cluster = {
        roles[each.name]: [f"{host}:{port}" for host in hosts_of(job, each) for _ in range(_copies(each))]
        for each in spec.tasks
        if each.name in roles and each.replicas
    }
    ordered = {role: cluster[role] for role in ("ps", "worker", "chief", "evaluator") if role in cluster}
    own = {"type": roles.get(task.name, task.name), "index": index}
    text = json.dumps({"cluster": ordered, "task": own}, separators=(",", ":"))
    for container in _containers(pod, "containers"):
        _append(container, "env", [{"name": "TF_CONFIG", "value": text}])


def _copies(task: TaskSpec) -> int:
    """How often TF_CONFIG names each host of a task: one that all pods share, for each of them."""
    return task.replicas if task.template["spec"].get("hostname") else 1


def _mpi(pod: Content, job: str, spec: JobSpec, task: TaskSpec, index: int, flags: _Flags) -> None:
    variables: list[Content] = []
    if task.name == flags.text("master", "master"):
        worker = spec.task(flags.text("worker", "worker"))
        if worker is None:
            return
        variables = [{"name": "MPI_HOST", "value": ",".join(hosts_of(job, worker))}]
    for container in _containers(pod):
        _open_port(container, "mpijob-port", flags.number("port", 22))
        _append(container, "env", variables)


_ON_PODS: Final[Mapping[str, Callable[[Content, str, JobSpec, TaskSpec, int, _Flags], None]]] = {
    ENV: _env,
    SVC: _svc,
    SSH: _ssh,
    PYTORCH: _pytorch,
    TENSORFLOW: _tensorflow,
    MPI: _mpi,
}


# Objects


def hosts_name(job: str) -> str:
    """The name of the ConfigMap with the hosts of a job."""
    return f"{job}-svc"


def secret_name(job: str) -> str:
    """The name of the Secret with the key of a job."""
    return f"{job}-ssh"


def _variable(task: TaskSpec) -> str:
    return task.name.replace("-", "_").upper()


def make_hosts(job: str, spec: JobSpec) -> dict[str, str]:
    """The data of the ConfigMap with the hosts of each task, as files and as variables."""
    data: dict[str, str] = {}
    for task in spec.tasks:
        names = hosts_of(job, task)
        data[f"{task.name.replace('-', '_')}.host"] = "\n".join(names)
        data[f"VC_{_variable(task)}_HOSTS"] = ",".join(names)
        data[f"VC_{_variable(task)}_NUM"] = str(len(names))
    return data


def make_service(job: str, namespace: str, spec: JobSpec) -> Content:
    """The spec of the headless Service that gives the pods of a job their names."""
    published = _Flags(spec.plugins.get(SVC)).is_set("publish-not-ready-addresses")
    selector = {JOB_NAME: job, JOB_NAMESPACE: namespace}
    return {"clusterIP": "None", "selector": selector} | (
        {"publishNotReadyAddresses": True} if published else {}
    )


def make_network_policy(job: str, namespace: str, spec: JobSpec) -> Content | None:
    """The spec of the NetworkPolicy: only pods of the job reach its pods. None if it is switched off."""
    if _Flags(spec.plugins.get(SVC)).is_set("disable-network-policy"):
        return None
    pods = {"matchLabels": {JOB_NAME: job, JOB_NAMESPACE: namespace}}
    return {"podSelector": pods, "ingress": [{"from": [{"podSelector": pods}]}], "policyTypes": ["Ingress"]}


def make_key(job: str, spec: JobSpec) -> dict[str, str]:
    """The data of the Secret of a job, as text: with a new key, or the one that its arguments have."""
    flags = _Flags(spec.plugins.get(SSH))
    private, public = flags.text("ssh-private-key", ""), flags.text("ssh-public-key", "")
    if not private:
        # Imported here: few jobs need a key.
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import rsa

        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
        private = key.private_bytes(pem, form, serialization.NoEncryption()).decode()
        line = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        public = key.public_key().public_bytes(*line).decode() + "\n"
    port = flags.number("ssh-port", 22)
    lines = ["StrictHostKeyChecking no", "UserKnownHostsFile /dev/null"]
    for task in spec.tasks:
        for host in hosts_of(job, task):
            lines += [f"Host {host.partition('.')[0]}", f"  HostName {host}", f"  Port {port}"]
    return dict(zip(_SSH_FILES, (private, public, public, "\n".join(lines) + "\n"), strict=True))
