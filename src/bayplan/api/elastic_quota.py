"""ElasticQuota: what the pods of a namespace are guaranteed, and what they may use at most.

The custom resource of the scheduler-plugins project, `scheduling.x-k8s.io/v1alpha1`;
`plugins/capacity_scheduling.py` implements it. Scheduling does not read its status.
"""

from __future__ import annotations

from bayplan.api.meta import Object, Record, ResourceList


class ElasticQuotaSpec(Record, frozen=True):
    min: ResourceList = {}
    """What is guaranteed. What is not used of it, other namespaces may borrow."""
    max: ResourceList = {}
    """The limit. A resource that is not named is unlimited."""


class ElasticQuota(Object, frozen=True):
    spec: ElasticQuotaSpec = ElasticQuotaSpec()
