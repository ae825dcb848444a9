"""A tour with the real kubectl on `bayplan up`: what a user types, and what they expect to see."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.harness.process import Process, wait_until
from conformance.harness.programs import Programs

WEB = """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 3
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: web
        image: example.com/web:1
        resources:
          requests: {cpu: 100m, memory: 64Mi}
"""


class Kubectl:
    """kubectl, logged in to a cluster of `bayplan up`."""

    def __init__(self, program: Path, kubeconfig: Path) -> None:
        self._command = [str(program), "--kubeconfig", str(kubeconfig)]

    def __call__(self, arguments: str, given: str | None = None, editor: str = "") -> str:
        """What it prints. It must succeed, and have nothing to complain about."""
        done = self.run(arguments, given, editor)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run(
        self, arguments: str, given: str | None = None, editor: str = ""
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._command, *arguments.split()],
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={**os.environ, "KUBE_EDITOR": editor} if editor else None,
        )


@pytest.fixture(scope="module")
def kubectl(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    directory = tmp_path_factory.mktemp("tour")
    kubeconfig = directory / "kubeconfig"
    command: list[str | Path] = [sys.executable, "-m", "bayplan.cli.main", "up", "--nodes", "4"]
    with Process("bayplan up", [*command, "--kubeconfig", kubeconfig], directory / "up.log"):
        wait_until(kubeconfig.exists, "bayplan up is ready")
        found = Kubectl(programs.kubectl, kubeconfig)
        wait_until(lambda: found.run("get nodes").stdout.count(" Ready ") == 4, "nodes are ready")
        found("apply -f -", WEB)
        found("rollout status deployment/web --timeout=30s")
        yield found


def shown(output: str) -> list[list[str]]:
    """A table as rows of words."""
    return [re.split(r"\s{2,}", line.strip()) for line in output.splitlines()]


def test_get_nodes(kubectl: Kubectl) -> None:
    table = shown(kubectl("get nodes"))
    assert table[0] == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    assert [row[:3] for row in table[1:]] == [[f"n0{n}", "Ready", "<none>"] for n in range(1, 5)]


def test_get_deployments_and_pods(kubectl: Kubectl) -> None:
    assert shown(kubectl("get deployment web"))[0] == ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"]
    assert shown(kubectl("get deployment web"))[1][:4] == ["web", "3/3", "3", "3"]
    table = shown(kubectl("get pods -l app=web -o wide"))
    assert table[0][:6] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP"]
    assert [row[1:3] for row in table[1:]] == [["1/1", "Running"]] * 3


def test_get_in_other_forms(kubectl: Kubectl) -> None:
    assert kubectl("get deployment web -o name") == "deployment.apps/web\n"
    assert kubectl("get deployment web -o jsonpath={.spec.replicas}") == "3"
    assert json.loads(kubectl("get deployment web -o json"))["kind"] == "Deployment"
    assert kubectl("get deployment web -o yaml").startswith("apiVersion: apps/v1\n")
    assert shown(kubectl("get ns -o custom-columns=N:.metadata.name"))[0] == ["N"]


def test_describe(kubectl: Kubectl) -> None:
    pod = kubectl("get pods -l app=web -o name").splitlines()[0]
    text = kubectl(f"describe {pod}")
    for line in (
        "Status:           Running",
        "Controlled By:    ReplicaSet/web-",
        "Successfully assigned default/",
    ):
        assert re.sub(r" +", " ", line) in re.sub(r" +", " ", text)
    assert "Allocatable:" in kubectl("describe node n01")
    assert "StrategyType:" in kubectl("describe deployment web")


def test_apply_again_changes_what_differs(kubectl: Kubectl) -> None:
    assert kubectl("apply -f -", WEB) == "deployment.apps/web unchanged\n"
    assert (
        kubectl("apply --server-side --force-conflicts -f -", WEB)
        == "deployment.apps/web serverside-applied\n"
    )
    assert "spec" in kubectl("diff -f -", WEB) or kubectl.run("diff -f -", WEB).returncode == 0


def test_create_and_delete(kubectl: Kubectl) -> None:
    assert kubectl("create namespace toys") == "namespace/toys created\n"
    assert kubectl("create configmap c --from-literal=a=1 -n toys") == "configmap/c created\n"
    again = kubectl.run("create configmap c -n toys")
    assert again.returncode == 1
    assert again.stderr == 'error: failed to create configmap: configmaps "c" already exists\n'
    assert kubectl("delete configmap c -n toys") in (
        'configmap "c" deleted\n',
        'configmap "c" deleted from toys namespace\n',
    )
    assert kubectl.run("get configmap c -n toys").stderr == (
        'Error from server (NotFound): configmaps "c" not found\n'
    )
    kubectl("delete namespace toys --timeout=30s")
    assert kubectl.run("get namespace toys").returncode == 1


def test_edit(kubectl: Kubectl) -> None:
    kubectl("create configmap edited --from-literal=a=before")
    assert kubectl("edit configmap edited", editor="sed -i s/before/after/") == "configmap/edited edited\n"
    assert kubectl("get configmap edited -o jsonpath={.data.a}") == "after"


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        pytest.param("merge", '{"data":{"a":"2"}}', id="merge patch"),
        pytest.param("json", '[{"op":"replace","path":"/data/a","value":"2"}]', id="JSON patch"),
        pytest.param("strategic", '{"data":{"a":"2"}}', id="strategic merge patch"),
    ],
)
def test_patch(kubectl: Kubectl, kind: str, patch: str) -> None:
    name = f"patched-{kind}"
    kubectl(f"create configmap {name} --from-literal=a=1")
    assert kubectl(f"patch configmap {name} --type={kind} -p {patch}") == f"configmap/{name} patched\n"
    assert kubectl(f"get configmap {name} -o jsonpath={{.data.a}}") == "2"


def test_label_and_annotate(kubectl: Kubectl) -> None:
    assert kubectl("label node n02 disk=ssd") == "node/n02 labeled\n"
    assert kubectl("get nodes -l disk=ssd -o name") == "node/n02\n"
    assert kubectl("label node n02 disk-") == "node/n02 unlabeled\n"
    assert kubectl("annotate node n02 note=hello") == "node/n02 annotated\n"
    assert kubectl("get node n02 -o jsonpath={.metadata.annotations.note}") == "hello"


def test_taint(kubectl: Kubectl) -> None:
    assert kubectl("taint node n03 dedicated=ml:NoSchedule") == "node/n03 tainted\n"
    assert "dedicated=ml:NoSchedule" in kubectl("describe node n03")
    assert kubectl("taint node n03 dedicated-") == "node/n03 untainted\n"


def test_cordon_drain_uncordon(kubectl: Kubectl) -> None:
    assert kubectl("cordon n01") == "node/n01 cordoned\n"
    assert shown(kubectl("get node n01"))[1][1] == "Ready,SchedulingDisabled"
    assert kubectl("drain n01 --ignore-daemonsets --timeout=30s").endswith("node/n01 drained\n")
    kubectl("rollout status deployment/web --timeout=30s")
    assert kubectl("get pods -l app=web --field-selector spec.nodeName=n01 -o name") == ""
    assert kubectl("uncordon n01") == "node/n01 uncordoned\n"


def test_scale_and_wait(kubectl: Kubectl) -> None:
    assert kubectl("scale deployment web --replicas=5") == "deployment.apps/web scaled\n"
    kubectl("wait deployment/web --for=jsonpath={.status.readyReplicas}=5 --timeout=30s")
    assert len(kubectl("get pods -l app=web -o name").splitlines()) == 5
    assert kubectl("wait pod -l app=web --for=condition=Ready --timeout=30s").count("condition met") == 5
    kubectl("scale deployment web --replicas=3")
    kubectl("wait deployment/web --for=jsonpath={.status.replicas}=3 --timeout=30s")


def test_rollout(kubectl: Kubectl) -> None:
    kubectl("set image deployment/web web=example.com/web:2")
    assert kubectl("rollout status deployment/web --timeout=60s").endswith(
        'deployment "web" successfully rolled out\n'
    )
    images = kubectl("get pods -l app=web -o jsonpath={.items[*].spec.containers[0].image}")
    assert set(images.split()) == {"example.com/web:2"}
    assert "REVISION" in kubectl("rollout history deployment/web")
    kubectl("rollout undo deployment/web")
    kubectl("rollout status deployment/web --timeout=60s")
    assert kubectl("get deployment web -o jsonpath={.spec.template.spec.containers[0].image}") == (
        "example.com/web:1"
    )


def test_a_pod_that_fits_nowhere_says_why(kubectl: Kubectl) -> None:
    pod = textwrap.dedent(
        """
        apiVersion: v1
        kind: Pod
        metadata: {name: huge}
        spec:
          containers:
          - {name: c, image: web, resources: {requests: {cpu: "64"}}}
        """
    )
    assert kubectl("apply -f -", pod) == "pod/huge created\n"
    wait_until(lambda: "FailedScheduling" in kubectl("describe pod huge"), "an event about the pod")
    assert "0/4 nodes are available: 4 Insufficient cpu." in kubectl("describe pod huge")
    assert shown(kubectl("get pod huge"))[1][2] == "Pending"
    kubectl("delete pod huge --wait=true --timeout=30s")


def test_an_invalid_object_is_refused(kubectl: Kubectl) -> None:
    bad = "apiVersion: v1\nkind: Pod\nmetadata: {name: Bad_Name}\nspec: {containers: [{name: c, image: x}]}\n"
    refused = kubectl.run("apply -f -", bad)
    assert refused.returncode == 1
    assert 'The Pod "Bad_Name" is invalid: metadata.name: Invalid value: "Bad_Name"' in refused.stderr
    unknown = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [], nonsense: 1}\n"
    assert 'unknown field "spec.nonsense"' in kubectl.run("apply -f -", unknown).stderr


def test_watch(kubectl: Kubectl) -> None:
    kubectl("create configmap watched --from-literal=a=1")
    lines = kubectl("get configmap watched --watch --request-timeout=1s -o name")
    assert lines == "configmap/watched\n"


def test_what_there_is_and_who_may(kubectl: Kubectl) -> None:
    table = shown(kubectl("api-resources"))
    assert table[0] == ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"]
    names = {row[0] for row in table[1:]}
    assert {"pods", "nodes", "deployments", "jobs", "persistentvolumeclaims", "leases"} <= names
    assert kubectl("auth can-i create pods") == "yes\n"
    assert "apps/v1" in kubectl("api-versions").split()
    assert "Server Version: v1.36" in kubectl("version")
    assert kubectl("explain pod.spec.nodeName").startswith("KIND:       Pod\n")
