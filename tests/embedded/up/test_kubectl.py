"""A tour with the real kubectl: each command on a cluster of `bayplan up`, and what a user then reads.

kubectl v1.36.4 comes with the programs of `make conformance`; another one on the PATH will do. Where there is
none this is skipped.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bayplan.embedded.up.cluster import LocalCluster, LocalSettings
from bayplan.embedded.up.report import Outcomes
from tests.effort import LONG_RUN

BUILT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bayplan/conformance/bin/kubectl"
KUBECTL = str(BUILT) if BUILT.exists() else shutil.which("kubectl")

WEB = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: c, image: "web:1", resources: {requests: {cpu: 100m}}}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
"""
GANGS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gangs.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Gang, plural: gangs, shortNames: [gg]}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {size: {type: integer}}}}
"""
GANG = """
apiVersion: example.com/v1
kind: Gang
metadata: {name: g}
spec: {size: 3}
"""
WRONG = """
apiVersion: v1
kind: Pod
metadata: {name: wrong}
spec: {containers: [{name: C, image: x, colour: red}]}
"""
UNKNOWN = """
apiVersion: example.com/v1
kind: Unknown
metadata: {name: of}
"""
CHART = Path(__file__).parents[1] / "server/manifests/chart.yaml"
SECOND_SCHEDULER = Path(__file__).parents[3] / "deploy/second-scheduler"
FEWER = '[{"op":"replace","path":"/spec/replicas","value":2}]'
HUGE = '{"spec":{"containers":[{"name":"c","image":"x","resources":{"requests":{"cpu":"99"}}}]}}'

TOUR: Sequence[tuple[str, str, str]] = (
    ("version", "", r"Server Version: v1\.37\.1\+bayplan"),
    ("api-resources --api-group=apps", "", r"deployments +deploy +apps/v1 +true +Deployment"),
    ("auth can-i create pods", "", r"^yes"),
    ("auth whoami", "", r"kubernetes-admin"),
    ("get nodes", "", r"n01 +Ready"),
    ("get nodes -o wide", "", r"INTERNAL-IP"),
    ("apply -f -", WEB, r"deployment\.apps/web created"),
    ("rollout status deployment web --timeout=20s", "", r'deployment "web" successfully rolled out'),
    ("get deployment web", "", r"web +2/2 +2 +2"),
    ("get pods -l app=web -o wide", "", r"1/1 +Running +0 .* n0\d"),
    ("apply -f -", WEB, r"deployment\.apps/web unchanged"),
    ("apply -f -", WEB.replace("web:1", "web:2"), r"deployment\.apps/web configured"),
    ("rollout status deployment web --timeout=20s", "", r"successfully rolled out"),
    ("rollout history deployment web", "", r"^2 "),
    ("scale deployment web --replicas=3", "", r"deployment\.apps/web scaled"),
    ("wait deployment web --for=jsonpath={.status.readyReplicas}=3 --timeout=20s", "", r"condition met"),
    ("get all", "", r"replicaset\.apps/web-\w+ +3 +3 +3"),
    ("describe deployment web", "", r"Replicas: +3 desired \| 3 updated \| 3 total \| 3 available"),
    ("auth can-i --list", "", r"\*\.\* +\[\] +\[\] +\[\*\]"),
    (
        "logs deployment/web",
        "",
        r"\(NotImplemented\): bayplan's containers are simulated: they write no logs",
    ),
    ("exec deployment/web -- ls", "", r"bayplan's containers are simulated: no command can be run in them"),
    ("attach deployment/web", "", r"bayplan's containers are simulated: there is no process to attach to"),
    ("port-forward deployment/web 8080", "", r"bayplan's containers are simulated: they listen on no port"),
    ("top nodes", "", r"bayplan's containers are simulated: they take no CPU"),
    ("create token default", "", r"^eyJ[\w.-]+$"),
    ("get nodes --field-selector spec.unschedulable=false -o name", "", r"^node/n01$"),
    ("get service kubernetes", "", r"kubernetes +ClusterIP +10\.96\.0\.1 +<none> +443/TCP"),
    (f"apply -f {CHART}", "", r"Warning: webhooks are stored here, and never called"),
    ("get -n shop ingress,quota", "", r"requests\.cpu: 200m/10"),
    (
        f"apply -f {SECOND_SCHEDULER} --dry-run=server",
        "",
        r"\A(\S+ created \(server dry run\)\n|Warning: every user may do .*\n)+\Z",
    ),
    (f"apply -k {SECOND_SCHEDULER}", "", r"clusterrolebinding\.rbac\.authorization\.k8s\.io/bayplan created"),
    ("apply -f -", UNKNOWN, r'no matches for kind "Unknown" in version "example\.com/v1"'),
    ("delete ns shop --timeout=20s", "", r'namespace "shop" deleted'),
    ("label node n01 disk=ssd", "", r"node/n01 labeled"),
    ("get nodes -l disk=ssd -o name", "", r"^node/n01$"),
    ("annotate deployment web note=hello", "", r"deployment\.apps/web annotated"),
    ("taint node n02 dedicated=ml:NoSchedule", "", r"node/n02 tainted"),
    ("describe node n02", "", r"Taints: +dedicated=ml:NoSchedule"),
    ("taint node n02 dedicated-", "", r"node/n02 untainted"),
    ("cordon n03", "", r"node/n03 cordoned"),
    ("get node n03", "", r"Ready,SchedulingDisabled"),
    ("uncordon n03", "", r"node/n03 uncordoned"),
    ("drain n01 --ignore-daemonsets --timeout=60s", "", r"node/n01 drained"),
    ("get pods --field-selector spec.nodeName=n01", "", r"No resources found"),
    ("uncordon n01", "", r"node/n01 uncordoned"),
    ('patch deployment web -p {"spec":{"replicas":1}}', "", r"deployment\.apps/web patched"),
    (
        'patch deployment web --type=json -p [{"op":"replace","path":"/spec/replicas","value":2}]',
        "",
        r"patched",
    ),
    ("set image deployment/web c=web:3", "", r"image updated"),
    ("create configmap settings --from-literal=a=b", "", r"configmap/settings created"),
    ("create secret generic key --from-literal=a=b", "", r"secret/key created"),
    ("create job once --image=x -- true", "", r"job\.batch/once created"),
    ("wait job once --for=condition=complete --timeout=30s", "", r"condition met"),
    ("create priorityclass high --value=1000", "", r"priorityclass\.scheduling\.k8s\.io/high created"),
    ("edit configmap settings", "", r"configmap/settings edited"),
    ("get configmap settings -o jsonpath={.data.a}", "", r"^edited$"),
    ("apply --server-side -f -", WEB.replace("web:1", "web:3"), r"deployment\.apps/web serverside-applied"),
    ("apply -f -", WRONG, r'strict decoding error: unknown field "spec\.containers\[0\]\.colour"'),
    (
        "apply -f -",
        WRONG.replace(", colour: red", ""),
        r'spec\.containers\[0\]\.name: Invalid value: "C": a lowercase',
    ),
    (f"run huge --image=x --overrides={HUGE}", "", r"pod/huge created"),
    ("wait pod huge --for=condition=PodScheduled=false --timeout=20s", "", r"condition met"),
    ("describe pod huge", "", r"FailedScheduling .* 3 Insufficient cpu"),
    ("get events --field-selector involvedObject.name=huge", "", r"Warning +FailedScheduling +pod/huge"),
    ("bayplan explain pod huge", "", r"^default/huge is unschedulable;[^·]* · 0 of 3 nodes fit"),
    ("bayplan explain pod huge --context bayplan -n default", "", r"queue: unschedulable, after 1 attempt"),
    ("bayplan explain pod huge -n other", "", r"Pod other/huge: there is no such pod"),
    ("bayplan explain pod huge --context other", "", r"other"),
    ("delete pod huge", "", r'pod "huge" deleted'),
    ("explain pod.spec.tolerations", "", r"tolerationSeconds\t<integer>\n +How long the pod stays"),
    ("apply -f -", GANGS, r"customresourcedefinition\.apiextensions\.k8s\.io/gangs\.example\.com created"),
    ("wait crd gangs.example.com --for=condition=Established --timeout=20s", "", r"condition met"),
    ("apply -f -", GANG, r"gang\.example\.com/g created"),
    ("get gg", "", r"g +3"),
    ("delete crd gangs.example.com", "", r"deleted"),
    ("create namespace shop", "", r"namespace/shop created"),
    ("-n shop create configmap c", "", r"configmap/c created"),
    ("delete namespace shop --timeout=20s", "", r'namespace "shop" deleted'),
    ("get namespace shop", "", r'namespaces "shop" not found'),
    ("delete deployment web --cascade=foreground --timeout=60s", "", r'deployment\.apps "web" deleted'),
    ("get pods -l app=web", "", r"No resources found"),
)
"""Arguments, standard input, and what has to be found in what is printed."""


async def kubectl(kubeconfig: Path, arguments: str, text: str) -> str:
    """What kubectl prints, errors included."""
    environment = {
        **os.environ,
        # kubectl finds its plugins there: kubectl-bayplan is installed beside python.
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))),
        "KUBECONFIG": str(kubeconfig),
        "HOME": str(kubeconfig.parent),
        "KUBE_EDITOR": "sed -i 's/a: b/a: edited/'",
    }
    process = await asyncio.create_subprocess_exec(
        KUBECTL or "",
        *arguments.split(" "),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environment,
    )
    printed, _ = await asyncio.wait_for(process.communicate(text.encode()), 90)
    return printed.decode()


@LONG_RUN
@pytest.mark.skipif(
    KUBECTL is None, reason="there is no kubectl: `make conformance` builds one where there is Go"
)
def test_the_tour(tmp_path: Path) -> None:
    """Every command prints what a user expects."""

    async def scenario() -> list[str]:
        surprises = []
        async with LocalCluster(LocalSettings(nodes=3), Outcomes()) as cluster:
            kubeconfig = tmp_path / "kubeconfig"
            cluster.server.write_kubeconfig(kubeconfig)
            for arguments, text, expected in TOUR:
                printed = await kubectl(kubeconfig, arguments, text)
                if not re.search(expected, printed, re.MULTILINE):
                    surprises.append(f"$ kubectl {arguments}\n{printed}expected: {expected}")
        return surprises

    surprises = asyncio.run(scenario())
    assert not surprises, "\n\n".join(surprises)
