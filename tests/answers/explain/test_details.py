"""For every plugin: the details that the reason leaves out."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from bayplan.answers.explain.details import DETAILS, detail
from bayplan.answers.explain.rejections import rejections
from bayplan.api.meta import Object
from bayplan.api.pod import Container, ContainerRestartRule, GCEPersistentDiskVolumeSource, Pod, Volume
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.testing.builders import (
    make_csi_driver,
    make_csi_node,
    make_expression,
    make_namespace,
    make_node,
    make_node_affinity,
    make_node_term,
    make_pod,
    make_pod_affinity,
    make_pod_term,
    make_pv,
    make_pvc,
    make_selector,
    make_spread,
    make_storage_class,
)

from .evaluating import evaluate

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
WEB = {"app": "web"}
SSD = make_node_affinity(
    make_node_term(make_expression("disk", "In", "ssd"), make_expression(ZONE, "In", "c")),
    make_node_term(make_expression("disk", "In", "nvme")),
)
DISK = Volume(name="d", gce_persistent_disk=GCEPersistentDiskVolumeSource(pd_name="pd"))


def node(name: str, zone: str = "", **labels: str) -> Object:
    return make_node(name, labels={HOST: name, **({ZONE: zone} if zone else {}), **labels})


def web(name: str, where: str, **options: object) -> Pod:
    return make_pod(name, node=where, labels=WEB, **options)  # type: ignore[arg-type]


IN = f"default/w{{}} in {HOST}=a"
SPREAD = [node("a", "a"), node("b", "b"), node("c", "c"), web("w1", "a"), web("w2", "a"), web("w3", "b")]
KEEPS_AWAY = make_pod_affinity(anti_required=[make_pod_term(ZONE, WEB)])
EXCLUSIVE = make_pvc("data", volume="pv", access_modes=["ReadWriteOncePod"])
NEEDS_RESTARTS = Container(
    name="c", image="i", restart_policy_rules=(ContainerRestartRule(action="RestartAllContainers"),)
)


@pytest.mark.parametrize(
    ("pod", "objects", "expected"),
    [
        pytest.param(
            make_pod(node_selector={"disk": "ssd"}),
            [node("a", disk="hdd"), node("b"), node("c", disk="hdd")],
            {"NodeAffinity": "requires disk=ssd, has hdd (2), no such label (1)"},
            id="a label of nodeSelector",
        ),
        pytest.param(
            make_pod(affinity=SSD),
            [node("a", "a", disk="ssd"), node("b", "c", disk="hdd")],
            {
                "NodeAffinity": f"requires {ZONE}=c or disk=nvme on 1, has {ZONE}: a and disk: ssd; "
                "requires disk=ssd or disk=nvme on 1, has hdd"
            },
            id="the alternatives that a node comes nearest to",
        ),
        pytest.param(
            make_pod(host_ports=[80]),
            [node("a"), make_pod("ingress", node="a", host_ports=[80, 443])],
            {"NodePorts": "80/TCP is used by default/ingress"},
            id="a port",
        ),
        pytest.param(
            make_pod(labels=WEB, spread=[make_spread(ZONE, WEB)]),
            [*SPREAD, node("d"), make_pod("full", node="c", cpu="4")],
            {
                "PodTopologySpread": f"{ZONE}: a 2, b 1, c 0; minimum 0 + maxSkew 1 allows 1",
                "PodTopologySpread missing": f"no label {ZONE}",
            },
            id="the skew by domain",
        ),
        pytest.param(
            make_pod(labels=WEB, cpu="1"),
            [node("a", "a"), node("b", "a"), make_pod("guard", node="a", affinity=KEEPS_AWAY)],
            {"InterPodAffinity": f"anti-affinity to app=web of default/guard in {ZONE}=a"},
            id="the anti-affinity of another pod",
        ),
        pytest.param(
            make_pod(affinity=make_pod_affinity(anti_required=[make_pod_term(HOST, WEB)])),
            [node("a"), web("w1", "a"), web("w2", "a")],
            {"InterPodAffinity": f"its anti-affinity to app=web: {IN.format(1)}, {IN.format(2)}"},
            id="its own anti-affinity",
        ),
        pytest.param(
            make_pod(affinity=make_pod_affinity(required=[make_pod_term(ZONE, WEB)])),
            [node("a", "a", disk="full"), node("b", "b"), web("w1", "a", cpu="4"), node("c")],
            {
                "InterPodAffinity": f"pods matching app=web are only in {ZONE}=a (1); "
                f"no label {ZONE} on 1 node"
            },
            id="its own affinity",
        ),
        pytest.param(
            make_pod(affinity=make_pod_affinity(required=[make_pod_term(ZONE, WEB)])),
            [node("a", "a"), make_pod("w", namespace="other", node="a", labels=WEB)],
            {"InterPodAffinity": "no assigned pod in namespace default matches app=web; elsewhere: other/w"},
            id="affinity to pods that are not there",
        ),
        pytest.param(
            make_pod(claims=["data"]),
            [
                node("a", "a"),
                make_pvc("data", volume="pv"),
                make_pv("pv", claim=make_pvc("data"), on_nodes_with={ZONE: ["b"]}),
            ],
            {"VolumeBinding": f"volume pv of claim default/data requires {ZONE}=b, has a"},
            id="where a volume is",
        ),
        pytest.param(
            make_pod(claims=["data"]),
            [
                node("a"),
                make_pvc("data", storage_class="local", storage="5Gi"),
                make_storage_class("local", provisioner="kubernetes.io/no-provisioner"),
            ],
            {
                "VolumeBinding": "claim default/data: class local, 5Gi, ReadWriteOnce; "
                "there is no PersistentVolume of this class"
            },
            id="no volume for a claim",
        ),
        pytest.param(
            make_pod(claims=["data", "late", "bound"]),
            [
                node("a"),
                make_pvc("data", storage_class="now"),
                make_storage_class("now", wait_for_consumer=False),
                make_pvc("late", storage_class="wait"),
                make_storage_class("wait"),
                make_pvc("bound", volume="pv"),
                make_pv("pv", claim=make_pvc("bound")),
            ],
            {"VolumeBinding": "claim default/data: class now"},
            id="a claim that is not bound yet",
        ),
        pytest.param(
            make_pod(claims=["data"]),
            [node("a"), replace(make_pvc("data"), spec=replace(make_pvc("data").spec, volume_name="pv"))],
            {
                "VolumeBinding": "claim default/data names volume pv, but its binding is not complete: "
                "it lacks the annotation pv.kubernetes.io/bind-completed"
            },
            id="a claim that names a volume and is not bound",
        ),
        pytest.param(
            make_pod(claims=["data"]),
            [
                node("a", "a"),
                make_pvc("data", volume="pv"),
                make_pv("pv", claim=make_pvc("data"), labels={ZONE: "b"}),
            ],
            {"VolumeZone": f"volume pv of claim default/data requires {ZONE}=b, has a"},
            id="the zone of a volume",
        ),
        pytest.param(
            make_pod(claims=["data"]),
            [
                node("a"),
                EXCLUSIVE,
                make_pv("pv", claim=EXCLUSIVE),
                make_pod("user", node="a", claims=["data"]),
            ],
            {"VolumeRestrictions": "claim default/data is in use by default/user on a"},
            id="a claim of one pod",
        ),
        pytest.param(
            make_pod(volumes=[DISK]),
            [node("a"), make_pod("user", node="a", volumes=[DISK])],
            {"VolumeRestrictions": "in use by default/user"},
            id="a disk of one pod",
        ),
        pytest.param(
            make_pod(claims=["data"]),
            [
                node("a"),
                make_csi_node("a", {"csi.example.com": 1}),
                make_pvc("data", volume="pv"),
                make_pv("pv", claim=make_pvc("data"), driver="csi.example.com"),
                make_pvc("old", volume="old"),
                make_pv("old", claim=make_pvc("old"), driver="csi.example.com"),
                make_pod("user", node="a", claims=["old"]),
            ],
            {"NodeVolumeLimits": "csi.example.com: 1 of 1 volumes on a"},
            id="the limit of a driver",
        ),
        pytest.param(
            make_pod(affinity=make_pod_affinity(required=[make_pod_term("rack", WEB)])),
            [node("a"), web("w1", "a")],
            {
                "InterPodAffinity": "pods matching app=web are only on nodes without the label rack: "
                "default/w1 on a; no label rack"
            },
            id="affinity where no node has the topology key",
        ),
        pytest.param(
            make_pod(
                affinity=make_pod_affinity(
                    required=[make_pod_term(ZONE, WEB, namespace_selector=make_selector({"team": "a"}))]
                )
            ),
            [node("a", "a"), make_namespace("default"), web("w1", "a")],
            {"InterPodAffinity": "no namespace matches the namespaceSelector team=a"},
            id="affinity whose namespaceSelector excludes the namespace",
        ),
        pytest.param(
            make_pod(labels=WEB, affinity=make_pod_affinity(required=[make_pod_term("rack", WEB)])),
            [node("a")],
            {"InterPodAffinity": "no label rack"},
            id="the first pod of a group, on a node without the topology key",
        ),
        pytest.param(
            make_pod(
                affinity=make_node_affinity(
                    make_node_term(make_expression("a", "Exists"), make_expression("b", "Exists")),
                    make_node_term(make_expression("disk", "In", "ssd")),
                )
            ),
            [node("n", disk="hdd")],
            {"NodeAffinity": "requires disk=ssd (nearest of 2 terms), has hdd"},
            id="the nearest term",
        ),
        pytest.param(
            make_pod(),
            [make_node("n", taints=["a=1:NoSchedule", "b:NoExecute", "c:PreferNoSchedule"])],
            {"TaintToleration": "a=1:NoSchedule and b:NoExecute"},
            id="all taints of a node",
        ),
        pytest.param(
            make_pod(claims=["data"]),
            [
                node("a", "a"),
                make_pvc("data", storage_class="fast"),
                make_storage_class("fast", allowed=[{ZONE: ["b", "c"]}]),
            ],
            {
                "VolumeBinding": "class fast of claim default/data (allowedTopologies) requires "
                f"{ZONE} in (b,c), has a"
            },
            id="allowedTopologies",
        ),
        pytest.param(
            make_pod(claims=["data"]),
            [
                node("a", "a"),
                make_pvc("data", storage_class="local", storage="5Gi"),
                make_storage_class("local", provisioner="kubernetes.io/no-provisioner"),
                make_pv("small", capacity="1Gi", storage_class="local", phase="Available"),
                make_pv("taken", storage_class="local", claim=make_pvc("other"), phase="Bound"),
                make_pv("far", storage_class="local", on_nodes_with={ZONE: ["b"]}, phase="Available"),
            ],
            {
                "VolumeBinding": "claim default/data: class local, 5Gi, ReadWriteOnce; "
                f"far requires {ZONE}=b, small has only 1Gi, taken belongs to claim default/other"
            },
            id="volumes that are too small, taken or elsewhere",
        ),
        pytest.param(
            make_pod(claims=["data"]),
            [
                node("a", "a"),
                make_pvc("data", storage_class="csi", storage="5Gi"),
                make_storage_class("csi", provisioner="csi.example.com"),
                make_csi_driver("csi.example.com", storage_capacity=True),
            ],
            {
                "VolumeBinding": "claim default/data: class csi, 5Gi; "
                "no CSIStorageCapacity of this class covers the node"
            },
            id="no CSIStorageCapacity",
        ),
        pytest.param(
            make_pod(cpu="2"),
            [node("a"), make_pod("n1", cpu="3", nominated_node="a", priority=9)],
            {"NodeResourcesFit": "lacks 1 cpu, counting pod nominated to a: default/n1"},
            id="a nominated pod",
        ),
        pytest.param(
            make_pod(node_selector={"disk": "ssd"}),
            [node("a"), make_pod("n1", cpu="3", nominated_node="a", priority=9)],
            {"NodeAffinity": "requires disk=ssd, has no such label"},
            id="a nominated pod that makes no difference",
        ),
        pytest.param(
            make_pod(requests={"example.com/gpu": 1}),
            [node("a"), make_pod("n1", cpu="3", nominated_node="a", priority=9)],
            {"NodeResourcesFit": "no example.com/gpu on this node"},
            id="a nominated pod that makes no difference to what the plugin counts",
        ),
        pytest.param(
            make_pod(cpu="2"),
            [node("a"), make_pod("old", cpu="3", node="a", deleted=datetime.now(UTC), priority=9)],
            {"NodeResourcesFit": "lacks 1 cpu (3 will be free when terminating pod default/old ends)"},
            id="what terminating pods will free",
        ),
        pytest.param(
            make_pod(host_ports=[80]),
            [node("a"), make_pod("web", node="a", host_ports=[80], phase="Pending", priority=9)],
            {"NodePorts": "80/TCP is used by default/web (not started)"},
            id="a pod that has not started",
        ),
        pytest.param(
            make_pod(containers=[NEEDS_RESTARTS]),
            [node("a")],
            {"NodeDeclaredFeatures": "lacks RestartAllContainersOnContainerExits"},
            id="a feature",
        ),
    ],
)
def test_details_of_reasons(pod: Pod, objects: list[Object], expected: dict[str, str]) -> None:
    evaluated = evaluate(pod, objects)
    found = {}
    for group in rejections(evaluated.explanation):
        is_missing = any("missing required label" in reason for reason in group.status.reasons)
        key = f"{group.status.plugin} missing" if is_missing else group.status.plugin
        found[key] = detail(evaluated.framework, evaluated.pod, group).text
    assert {key: found.get(key) for key in expected} == expected


def test_every_filter_has_details_or_needs_none() -> None:
    """The reasons of NodeName and NodeUnschedulable are complete; devices have a table of their own."""
    filters = {plugin.name for plugin in BUILTIN_PLUGINS if hasattr(plugin, "filter")}
    assert filters - DETAILS.keys() == {"DynamicResources", "NodeName", "NodeUnschedulable"}
