"""What the plugins of Volcano's Jobs add to pods: the expected values follow Volcano's controller."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_public_key

from bayplan.api.meta import Content
from bayplan.controllers.volcano import plugins
from bayplan.controllers.volcano.objects import make_pod
from bayplan.controllers.volcano.spec import PLUGINS, InvalidJobError, JobSpec, read_spec


def job_of(used: dict[str, Any], **tasks: int) -> Content:
    """A job with these plugins, and replicas by task."""

    def task(name: str, replicas: int) -> Content:
        containers = [{"name": "c", "image": "i"}]
        init = [{"name": "init", "image": "i", "env": [{"name": "OWN", "value": "1"}]}]
        return {
            "name": name,
            "replicas": replicas,
            "template": {"spec": {"containers": containers, "initContainers": init}},
        }

    meta = {"name": "j", "namespace": "default", "uid": "u"}
    listed = [task(name.replace("_", "-"), replicas) for name, replicas in tasks.items()]
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": meta,
        "spec": {"plugins": used, "tasks": listed},
    }


def made(job: Content, task: str, index: int) -> Content:
    spec = read_spec(job)
    found = spec.task(task)
    assert found is not None
    pod_spec: Content = make_pod(job, spec, found, index)["spec"]
    return pod_spec


def variables(container: Content) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container.get("env") or () if "value" in each}


@pytest.mark.parametrize(
    ("arguments", "task", "index", "expected"),
    [
        pytest.param([], "master", 0, ("j-master-0.j", "23456", "3", "0"), id="the master has rank 0"),
        pytest.param([], "worker", 1, ("j-master-0.j", "23456", "3", "2"), id="workers follow"),
        pytest.param(["--port=99"], "worker", 0, ("j-master-0.j", "99", "3", "1"), id="another port"),
        pytest.param(["--port", "99"], "worker", 0, ("j-master-0.j", "99", "3", "1"), id="as two arguments"),
        pytest.param(["--port=x"], "worker", 0, ("j-master-0.j", "23456", "3", "1"), id="not a port"),
        pytest.param([], "other", 0, ("j-master-0.j", "23456", "3", None), id="another task has no rank"),
        pytest.param(
            ["--master=other", "--worker=worker"],
            "other",
            0,
            ("j-other-0.j", "23456", "3", "0"),
            id="tasks with other names",
        ),
        pytest.param(["--master=gone"], "worker", 0, (None, None, None, None), id="no master"),
    ],
)
def test_pytorch(arguments: list[str], task: str, index: int, expected: tuple[str | None, ...]) -> None:
    spec = made(job_of({"pytorch": arguments}, master=1, worker=2, other=1), task, index)
    (container,) = spec["containers"]
    found = variables(container)
    names = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")
    assert tuple(found.get(name) for name in names) == expected
    ports = [each["containerPort"] for each in container.get("ports") or ()]
    assert ports == ([int(expected[1])] if expected[1] else [])
    assert spec["subdomain"] == "j", "the plugin svc is added"


def test_pytorch_workers_may_wait_for_the_master() -> None:
    job = job_of({"pytorch": ["--wait-master-enabled=true"]}, master=1, worker=1)
    assert [each["name"] for each in made(job, "worker", 0)["initContainers"]] == ["init", "wait-for-master"]
    assert [each["name"] for each in made(job, "master", 0)["initContainers"]] == ["init"]


def test_tensorflow() -> None:
    job = job_of({"tensorflow": ["--worker=work"]}, ps=1, work=2, watch=1)
    (container,) = made(job, "work", 1)["containers"]
    assert json.loads(variables(container)["TF_CONFIG"]) == {
        "cluster": {"ps": ["j-ps-0.j:2222"], "worker": ["j-work-0.j:2222", "j-work-1.j:2222"]},
        "task": {"type": "worker", "index": 1},
    }
    alone = made(job_of({"tensorflow": []}, worker=1), "worker", 0)
    assert "TF_CONFIG" not in variables(alone["containers"][0]), "one process needs no cluster"


def test_mpi() -> None:
    """Only the master gets the hosts; all open the port of ssh, which is added."""
    job = job_of({"mpi": []}, master=1, worker=2)
    for name, hosts in (("master", "j-worker-0.j,j-worker-1.j"), ("worker", None)):
        spec = made(job, name, 0)
        for container in (*spec["containers"], *spec["initContainers"]):
            assert variables(container).get("MPI_HOST") == hosts
            assert container["ports"] == [{"name": "mpijob-port", "containerPort": 22, "protocol": "TCP"}]
        assert {each["name"] for each in spec["volumes"]} == {"j-svc", "j-ssh"}


def test_ssh() -> None:
    """The key can be used, and all hosts are known."""
    data = plugins.make_key("j", read_spec(job_of({"ssh": ["--ssh-port=2222"]}, w=2)))
    private, public = data["id_rsa"].encode(), data["id_rsa.pub"].encode()
    key = load_pem_private_key(private, None)
    assert key.public_key() == load_ssh_public_key(public)
    assert data["authorized_keys"] == data["id_rsa.pub"]
    assert data["config"] == (
        "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n"
        "Host j-w-0\n  HostName j-w-0.j\n  Port 2222\nHost j-w-1\n  HostName j-w-1.j\n  Port 2222\n"
    )
    given = plugins.make_key(
        "j", read_spec(job_of({"ssh": ["--ssh-private-key=a", "--ssh-public-key=b"]}, w=1))
    )
    assert (given["id_rsa"], given["id_rsa.pub"]) == ("a", "b")


@pytest.mark.parametrize(
    ("arguments", "path", "mode"),
    [
        pytest.param([], "/root/.ssh", 0o600, id="of root"),
        pytest.param(["--ssh-key-file-path=/home/user/.ssh"], "/home/user/.ssh", 0o644, id="of another user"),
    ],
)
def test_where_the_key_is(arguments: list[str], path: str, mode: int) -> None:
    spec = made(job_of({"ssh": arguments}, w=1), "w", 0)
    (volume,) = spec["volumes"]
    assert volume["secret"]["defaultMode"] == mode
    for container in (*spec["containers"], *spec["initContainers"]):
        assert container["volumeMounts"] == [{"name": "j-ssh", "mountPath": path, "subPath": ".ssh"}]


def svc(*arguments: str) -> JobSpec:
    return read_spec(job_of({"svc": list(arguments)}, w_w=1))


def test_svc() -> None:
    """Its arguments switch off variables and the NetworkPolicy."""
    assert plugins.make_hosts("j", svc()) == {
        "w_w.host": "j-w-w-0.j",
        "VC_W_W_HOSTS": "j-w-w-0.j",
        "VC_W_W_NUM": "1",
    }
    assert "publishNotReadyAddresses" not in plugins.make_service("j", "default", svc())
    open_service = plugins.make_service("j", "default", svc("--publish-not-ready-addresses"))
    assert open_service["publishNotReadyAddresses"]
    assert plugins.make_network_policy("j", "default", svc()) is not None
    assert plugins.make_network_policy("j", "default", svc("--disable-network-policy=true")) is None
    quiet = made(job_of({"svc": ["--inject-hosts-env=false"]}, w=1), "w", 0)
    assert not quiet["containers"][0]["env"]
    assert quiet["containers"][0]["volumeMounts"] == [{"name": "j-svc", "mountPath": "/etc/volcano"}]


def test_the_template_is_not_changed() -> None:
    """The pods of a task share it."""
    job = job_of({name: [] for name in PLUGINS}, master=1, worker=1)
    before = json.dumps(job)
    assert [each["name"] for each in made(job, "worker", 0)["initContainers"][0]["env"]][:1] == ["OWN"]
    assert json.dumps(job) == before


@pytest.mark.parametrize(
    ("volumes", "problem"),
    [
        pytest.param([{"volumeClaimName": "c"}], "mountPath is required", id="no path"),
        pytest.param(
            [{"mountPath": "/x", "volumeClaimName": "c"}, {"mountPath": "/x", "volumeClaimName": "d"}],
            "duplicated mountPath: /x",
            id="the same path twice",
        ),
        pytest.param(
            [{"mountPath": "/x"}],
            "either VolumeClaim or VolumeClaimName must be specified",
            id="no claim",
        ),
        pytest.param(
            [{"mountPath": "/x", "volumeClaimName": "c", "volumeClaim": {}}],
            "conflict: If you want to use an existing PVC, just specify VolumeClaimName",
            id="both claims",
        ),
    ],
)
def test_invalid_volumes(volumes: list[Content], problem: str) -> None:
    job = job_of({}, w=1)
    job["spec"]["volumes"] = volumes
    with pytest.raises(InvalidJobError, match=problem):
        read_spec(job)
