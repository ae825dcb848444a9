"""Objects missing from a dump are reported if they could change the result, and only then."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.answers.explain.explanation import explain
from bayplan.answers.sources.warnings import MissingObjects, Reason, Warning
from bayplan.api.kinds import KINDS
from bayplan.api.meta import LabelSelector, Object, OwnerReference
from bayplan.api.pod import Pod, PodAffinityTerm, PodResourceClaim, PodSchedulingGroup
from bayplan.framework.plugin_api import Plugin
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.scheduler.core import SchedulingCore
from bayplan.testing.builders import (
    make_csi_node,
    make_namespace,
    make_node,
    make_pdb,
    make_pod,
    make_pod_affinity,
    make_pod_term,
    make_pv,
    make_pvc,
    make_replica_set,
    make_resource_slice,
    make_spread,
    make_storage_class,
)

GONE = "is not in the dump: evaluated as if it did not exist"
CSI_NODES = "the dump has no csinodes: limits of volumes per node are not checked"
SPREADING = "default topology spreading does not count for the score"


class Holds(Plugin):
    def permit(self, *_: Any) -> None:
        return None


def messages(pod: Pod, *objects: Object, plugins: tuple[type[Plugin], ...] = ()) -> list[str]:
    core = SchedulingCore(plugins=(*BUILTIN_PLUGINS, *plugins))
    everything = [make_node("n"), *objects]
    core.load(everything)
    framework = core.frameworks["default-scheduler"]
    found = MissingObjects(everything).of_pod(
        pod, framework.profile, preempts=explain(framework, pod).has_candidates
    )
    assert {warning.pod for warning in found} <= {pod.key}
    return [warning.message for warning in found]


FROM_TEMPLATE = PodResourceClaim(name="gpu", resource_claim_template_name="t")
OWNED = OwnerReference(kind="ReplicaSet", name="web", uid="u", controller=True)
OF_TEAM = PodAffinityTerm(
    label_selector=LabelSelector(match_labels={"app": "web"}),
    topology_key="zone",
    namespace_selector=LabelSelector(match_labels={"team": "red"}),
)


@pytest.mark.parametrize(
    ("pod", "objects", "expected"),
    [
        pytest.param(make_pod(), [], [], id="nothing is missing"),
        pytest.param(
            make_pod(claims=["data"]), [], [f"PersistentVolumeClaim default/data {GONE}"], id="a claim"
        ),
        pytest.param(
            make_pod(claims=["data"]),
            [make_pvc("data", volume="pv")],
            [f"PersistentVolume pv {GONE}", CSI_NODES],
            id="the volume of a claim",
        ),
        pytest.param(
            make_pod(claims=["data"]),
            [make_pvc("data", volume="pv", storage_class="fast"), make_pv("pv")],
            [CSI_NODES],
            id="a bound claim needs no class",
        ),
        pytest.param(
            make_pod(claims=["data"]),
            [make_pvc("data", storage_class="fast")],
            [f"StorageClass fast {GONE}", CSI_NODES],
            id="the class of a claim",
        ),
        pytest.param(
            make_pod(claims=["data"]),
            [make_pvc("data", storage_class="fast"), make_storage_class("fast"), make_csi_node("n")],
            [],
            id="a claim with everything",
        ),
        pytest.param(
            make_pod(affinity=make_pod_affinity(required=[OF_TEAM])),
            [],
            [
                "the dump has no namespaces: the namespaceSelector of an affinity term matches pods of no "
                "other namespace"
            ],
            id="namespaces",
        ),
        pytest.param(
            make_pod(affinity=make_pod_affinity(required=[OF_TEAM])),
            [make_namespace("red")],
            [],
            id="namespaces that are there",
        ),
        pytest.param(
            make_pod(affinity=make_pod_affinity(required=[make_pod_term("zone", {"app": "web"})])),
            [],
            [],
            id="affinity within the namespace",
        ),
        pytest.param(
            make_pod(owner=OWNED),
            [],
            [f"ReplicaSet default/web is not in the dump: {SPREADING}"],
            id="the owner, for default spreading",
        ),
        pytest.param(make_pod(owner=OWNED), [make_replica_set("web")], [], id="an owner that is there"),
        pytest.param(
            make_pod(owner=OWNED, spread=[make_spread("zone", {"app": "web"})]),
            [],
            [],
            id="an owner that does not matter: the pod has its own constraints",
        ),
        pytest.param(
            make_pod(cpu="4", priority=10),
            [make_pod("old", cpu="4", node="n")],
            ["the dump has no poddisruptionbudgets: preemption victims are chosen as if none were protected"],
            id="budgets, where a pod would be evicted",
        ),
        pytest.param(
            make_pod(cpu="4", priority=10),
            [make_pod("old", cpu="4", node="n"), make_pdb("b")],
            [],
            id="budgets that are there",
        ),
        pytest.param(
            make_pod(resource_claims=(FROM_TEMPLATE,)),
            [make_resource_slice("n")],
            [
                "ResourceClaimTemplate default/t is not in the dump: "
                "evaluated as if no ResourceClaim could be created from it"
            ],
            id="the template of a claim that is still to be created",
        ),
        pytest.param(
            make_pod(labels={"scheduling.x-k8s.io/pod-group": "gang"}),
            [],
            [
                "the label scheduling.x-k8s.io/pod-group: gang asks to be scheduled with its group, "
                "and Coscheduling is not run: pass --plugin Coscheduling, or --config, "
                "if the cluster's scheduler has it"
            ],
            id="the plugin that keeps a group together",
        ),
        pytest.param(
            make_pod(scheduling_group=PodSchedulingGroup(pod_group_name="gang")),
            [],
            [
                "evaluated without the other members of pod group default/gang: if the gate GenericWorkload "
                "is on in the cluster, its scheduler places enough members together or none "
                "(bayplan explain group default/gang)"
            ],
            id="the gate of pod groups",
        ),
        pytest.param(make_pod(cpu="64"), [], [], id="budgets do not matter where no pod can be evicted"),
    ],
)
def test_what_is_missing(pod: Pod, objects: list[Object], expected: list[str]) -> None:
    assert messages(pod, *objects) == expected


def test_permit_is_not_run() -> None:
    assert messages(make_pod(), plugins=(Holds,)) == [
        "Permit plugins are not run: Holds may delay or reject the pod after a node was found"
    ]


def test_kinds_that_were_listed_are_complete() -> None:
    """A snapshot or an API server has no such object: that is a fact and no warning."""
    pod = make_pod(claims=["data"], owner=OWNED, affinity=make_pod_affinity(required=[OF_TEAM]))
    core = SchedulingCore()
    profile = core.frameworks["default-scheduler"].profile
    assert MissingObjects([], KINDS.names).of_pod(pod, profile, preempts=True) == []
    found = MissingObjects([], KINDS.names - {"Namespace"}).of_pod(pod, profile, preempts=True)
    assert [(one.reason, one.object) for one in found] == [(Reason.MISSING_KIND, "namespaces")]


def test_as_json() -> None:
    assert Warning("a", "default/p").as_json() == {
        "pod": "default/p",
        "reason": "MissingObject",
        "message": "a",
    }
    assert Warning("a", object="Pod a").as_json() == {
        "reason": "MissingObject",
        "object": "Pod a",
        "message": "a",
    }
