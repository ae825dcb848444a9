"""From a workload to its pods: templates, owners, selectors, and hashes of templates."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from bayplan.api.meta import LabelSelector
from bayplan.api.selectors import Selector, compile_selector
from bayplan.embedded.server.documents import Content
from bayplan.embedded.server.kinds import Resource

TEMPLATE_HASH: Final = "pod-template-hash"
REVISION_HASH: Final = "controller-revision-hash"

_SAFE: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Letters of generated names: no vowels, and no similar-looking ones."""
_PODS_PER_CALL: Final = 10
_BYTES_PER_CALL: Final = 100_000
"""Of the JSON of pods: one of 40 kB takes about 4 ms to create, a small one half a millisecond."""
_encode = msgspec.json.Encoder(order="deterministic").encode


def pod_from(
    template: Content, owner: Content, *, name: str = "", labels: Mapping[str, str] | None = None
) -> Content:
    """A pod from a template, owned by `owner`; without a name it gets `generateName` from its owner's."""
    described = template.get("metadata") or {}
    meta: Content = {"ownerReferences": [owner_reference(owner)]}
    if name:
        meta["name"] = name
    else:
        meta["generateName"] = f"{owner['metadata']['name']}-"
    for field in ("labels", "annotations"):
        if described.get(field):
            meta[field] = dict(described[field])
    if labels:
        meta["labels"] = {**meta.get("labels", {}), **labels}
    if described.get("finalizers"):
        meta["finalizers"] = list(described["finalizers"])
    # Parts of a spec are never modified in place: controllers modify copies.
    return {"metadata": meta, "spec": dict(template.get("spec") or {})}


def pods_per_call(template: Content) -> int:
    """How many pods a controller creates before it lets other tasks run; the rest follow in the next call."""
    return max(min(_BYTES_PER_CALL // len(_encode(template)), _PODS_PER_CALL), 1)


def owner_reference(owner: Content) -> Content:
    """How an object names the one that manages it."""
    meta = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controller_reference(content: Content) -> Content | None:
    """The owner that manages an object, if one does."""
    references = content["metadata"].get("ownerReferences") or ()
    return next((owner for owner in references if owner.get("controller")), None)


def is_controlled_by(content: Content, owner: Content) -> bool:
    reference = controller_reference(content)
    return reference is not None and reference["uid"] == owner["metadata"]["uid"]


def refers_to(resource: Resource, api_version: str, kind: str) -> bool:
    return resource.kind == kind and resource.api_version == api_version


def selector_of(content: Content) -> Selector:
    """The selector of a workload's pods. A ReplicationController has a plain map of labels."""
    written = (content.get("spec") or {}).get("selector")
    if written is not None and content["kind"] == "ReplicationController":
        written = {"matchLabels": written}
    return compiled(written)


def compiled(selector: Content | None) -> Selector:
    return compile_selector(
        None if selector is None else msgspec.convert(selector, LabelSelector, strict=False)
    )


def hash_of(content: Any, collisions: int = 0) -> str:
    """A short hash of a content, in the letters of generated names.

    Kubernetes hashes Go's print of its structs, which cannot be reproduced; only the form is the same.
    """
    digest = hashlib.sha256(_encode(content) + (str(collisions).encode() if collisions else b"")).digest()
    number = str(int.from_bytes(digest[:4], "big"))
    return "".join(_SAFE[ord(digit) % len(_SAFE)] for digit in number)


def rounded(amount: int | str | None, total: int, *, up: bool) -> int:
    """An absolute number, or a percentage of `total` such as "25%"."""
    if amount is None:
        return 0
    if isinstance(amount, int):
        return amount
    if not amount.endswith("%"):
        return int(amount)
    share = int(amount[:-1]) * total
    return -(-share // 100) if up else share // 100
