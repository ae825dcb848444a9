"""Which ResourceClaims a pod uses: those it names, those made for it from templates, and the scheduler's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bayplan.api.pod import Pod, PodResourceClaim
from bayplan.api.resource_claims import ResourceClaim


@dataclass(frozen=True, slots=True)
class PodClaim:
    """One claim of a pod."""

    name: str
    """In spec.resourceClaims; empty for the claim of extended resources."""
    claim_name: str
    """Of the ResourceClaim; empty if it has not been created yet."""
    template: str = ""
    """From which it is created for this pod alone; empty for a claim that a user creates."""


def claims_of(pod: Pod) -> Iterator[PodClaim]:
    """The claims in a pod's spec, without those that it turned out not to need."""
    statuses = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    for claim in pod.spec.resource_claims:
        if claim.resource_claim_name is not None:
            yield PodClaim(claim.name, claim.resource_claim_name)
        elif claim.resource_claim_template_name is not None and _is_needed(claim, statuses):
            name = statuses.get(claim.name) or ""
            yield PodClaim(claim.name, name, claim.resource_claim_template_name)


def all_claims_of(pod: Pod) -> Iterator[PodClaim]:
    """The same, and the claim that the scheduler made for its extended resources."""
    yield from claims_of(pod)
    if (extended := pod.status.extended_resource_claim_status) is not None:
        yield PodClaim("", extended.resource_claim_name)


def _is_needed(claim: PodResourceClaim, statuses: dict[str, str | None]) -> bool:
    """A status without a name says that no claim was needed."""
    return statuses.get(claim.name, "") is not None


def uses_claims(pod: Pod) -> bool:
    return bool(pod.spec.resource_claims) or pod.status.extended_resource_claim_status is not None


def no_longer_needs_claims(pod: Pod) -> bool:
    """Whether a pod has ended, or is being deleted before it got a node."""
    return pod.is_finished or (pod.is_terminating and not pod.spec.node_name)


def owner_problem(pod: Pod, claim: ResourceClaim) -> str:
    """Why a claim from a template is not this pod's; empty if it is."""
    owner = claim.metadata.controller()
    if owner is not None and owner.uid == pod.uid:
        return ""
    return f"ResourceClaim {claim.key} was not created for Pod {pod.key} (Pod is not owner)"
