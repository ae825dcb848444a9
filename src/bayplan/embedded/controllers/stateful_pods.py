"""The pods of a StatefulSet and their claims. Their names have ordinals, so a recreated pod has the same
ones."""

from __future__ import annotations

from typing import Final

from bayplan.embedded.controllers.templates import REVISION_HASH, pod_from
from bayplan.embedded.server.documents import Content

POD_NAME_LABEL: Final = "statefulset.kubernetes.io/pod-name"
POD_INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"


def ordinal_of(pod_name: str, set_name: str) -> int | None:
    """The number in `web-3`, if it is a pod of `web`."""
    prefix, _, number = pod_name.rpartition("-")
    return int(number) if prefix == set_name and number.isdecimal() else None


def stateful_pod(content: Content, template: Content, digest: str, ordinal: int) -> Content:
    name = f"{content['metadata']['name']}-{ordinal}"
    labels = {REVISION_HASH: digest, POD_NAME_LABEL: name, POD_INDEX_LABEL: str(ordinal)}
    pod = pod_from(template, content, name=name, labels=labels)
    spec = pod["spec"]
    spec["hostname"] = name
    if content["spec"].get("serviceName"):
        spec["subdomain"] = content["spec"]["serviceName"]
    volumes = {
        claim["metadata"]["name"]: claim_name(claim, content, ordinal)
        for claim in content["spec"].get("volumeClaimTemplates") or ()
    }
    if volumes:
        others = [each for each in spec.get("volumes") or () if each["name"] not in volumes]
        ours = [
            {"name": volume, "persistentVolumeClaim": {"claimName": claim}}
            for volume, claim in volumes.items()
        ]
        spec["volumes"] = others + ours
    return pod


def claim_name(claim: Content, content: Content, ordinal: int) -> str:
    return f"{claim['metadata']['name']}-{content['metadata']['name']}-{ordinal}"


def claims_of(content: Content, ordinal: int) -> list[Content]:
    """The claims of a pod, with the labels of the set."""
    labels = (content["spec"].get("selector") or {}).get("matchLabels") or {}
    return [
        {
            "metadata": {
                "name": claim_name(claim, content, ordinal),
                "labels": {**(claim["metadata"].get("labels") or {}), **labels},
                **({"annotations": notes} if (notes := claim["metadata"].get("annotations")) else {}),
            },
            "spec": dict(claim["spec"]),
        }
        for claim in content["spec"].get("volumeClaimTemplates") or ()
    ]
