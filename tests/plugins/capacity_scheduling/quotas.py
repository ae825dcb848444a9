"""Quotas, pods of namespaces, and a configuration with CapacityScheduling."""

from __future__ import annotations

from typing import Any

from bayplan.api.meta import ObjectMeta, ResourceList
from bayplan.api.pod import Pod
from bayplan.api.workloads import ElasticQuota, ElasticQuotaSpec
from bayplan.config import KubeSchedulerConfiguration, parse_config
from bayplan.framework.plugin_api import Plugin
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.plugins.library.capacity_scheduling import CapacityScheduling
from bayplan.scheduler.plugin_sources import catalog_with
from bayplan.testing.builders import make_pod

PLUGINS: list[type[Plugin]] = [*BUILTIN_PLUGINS, CapacityScheduling]

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint:
      enabled: [{name: CapacityScheduling}]
      disabled: [{name: DefaultPreemption}]
"""


def make_config() -> KubeSchedulerConfiguration:
    return parse_config(CONFIG, catalog=catalog_with(PLUGINS))


def make_quota(namespace: str, min: ResourceList, max: ResourceList | None = None) -> ElasticQuota:
    return ElasticQuota(
        metadata=ObjectMeta(name="quota", namespace=namespace, uid=f"quota-{namespace}"),
        spec=ElasticQuotaSpec(min=min, max=max or {}),
    )


def pod_of(namespace: str, name: str, cpu: str = "2", **fields: Any) -> Pod:
    return make_pod(name, namespace=namespace, cpu=cpu, **fields)
