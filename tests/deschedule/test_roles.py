"""The roles in deploy/ suffice: with nothing else a descheduler plans, leads, evicts, surges and reports."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from bayplan.answers.sources.loading import SourceOptions, load_cluster
from bayplan.client.kubeconfig import load_access
from bayplan.client.leader_election import ElectionSettings
from bayplan.client.requests import Connections, Requests
from bayplan.config import DescheduleConfiguration, Mode
from bayplan.deschedule.executing import Outcome, Step
from bayplan.deschedule.process import RunOptions, run_descheduler
from bayplan.deschedule.times import Times
from bayplan.embedded.server.kinds import DEPLOYMENTS, EVENTS
from bayplan.embedded.up.cluster import LocalCluster, LocalSettings
from bayplan.embedded.up.report import Outcomes
from bayplan.errors import ForbiddenError
from bayplan.framework.args import Duration
from tests.deploy.manifests import DEPLOY, OPTIONAL, Manifest, objects
from tests.deschedule.situations import descheduler
from tests.deschedule.test_companion import WEB, nodes_of, taint
from tests.deschedule.test_surge import ready

LEASE = "bayplan-descheduler"
NODE = "/api/v1/nodes/node-1"
ACCOUNT = "/api/v1/namespaces/kube-system/serviceaccounts/bayplan-descheduler/token"


def path_of(item: Manifest) -> str:
    version = item["apiVersion"]
    namespace = item["metadata"].get("namespace")
    scope = f"/namespaces/{namespace}" if namespace else ""
    return f"/{'apis' if '/' in version else 'api'}/{version}{scope}/{item['kind'].lower()}s"


def surge_binding() -> Manifest:
    """As deploy/descheduler/descheduler.yaml binds the other role."""
    (binding,) = (one for one in objects(DEPLOY / "descheduler") if one["kind"] == "ClusterRoleBinding")
    name = "bayplan-descheduler-surge"
    return {**binding, "metadata": {"name": name}, "roleRef": {**binding["roleRef"], "name": name}}


async def install(kubeconfig: Path, mode: Mode) -> None:
    """Applies the manifests, and makes the kubeconfig that of the descheduler's account."""
    roles = [*objects(OPTIONAL / "descheduler.yaml"), *objects(DEPLOY / "descheduler")]
    if mode is Mode.SURGE:
        roles += [*objects(OPTIONAL / "descheduler-surge.yaml"), surge_binding()]
    connections = Connections(load_access(str(kubeconfig)))
    requests = Requests(connections, None, component="test")
    for item in roles:
        if item["kind"] != "Deployment":
            await requests.send("POST", path_of(item), json.dumps(item).encode())
    answer = await requests.send("POST", ACCOUNT, b'{"spec": {}}')
    await connections.close()
    content = yaml.safe_load(kubeconfig.read_text())
    content["users"][0]["user"] = {"token": json.loads(answer)["status"]["token"]}
    kubeconfig.write_text(yaml.safe_dump(content))


@pytest.mark.parametrize("mode", Mode)
def test_the_roles_suffice(tmp_path: Path, mode: Mode) -> None:
    kubeconfig, steps = tmp_path / "kubeconfig", list[Step]()

    async def scenario() -> tuple[list[str], list[Any]]:
        async with LocalCluster(LocalSettings(nodes=3, rbac=True), Outcomes()) as cluster:
            cluster.server.write_kubeconfig(kubeconfig)
            await install(kubeconfig, mode)
            api = cluster.server.api
            api.create(DEPLOYMENTS, {**WEB, "spec": {**WEB["spec"], "replicas": 1}}, "default")
            while not ready(api):
                await asyncio.sleep(0.02)
            taint(api, *nodes_of(api).values())
            loaded = await asyncio.to_thread(load_cluster, SourceOptions(kubeconfig=str(kubeconfig)))
            options = RunOptions(
                load_access(str(kubeconfig)),
                loaded,
                Times(),
                False,
                ElectionSettings(name=LEASE),
                ("kube-system", LEASE),
                None,
            )
            settings = DescheduleConfiguration(
                mode=mode, evictions_per_minute=6000, replacement_timeout=Duration.of(seconds=20)
            )
            policy = descheduler({"RemovePodsViolatingNodeTaints": {}})
            await run_descheduler(options, policy, settings, lambda _: None, steps.append)
            connections = Connections(load_access(str(kubeconfig)))
            with pytest.raises(ForbiddenError):
                await Requests(connections, None, component="test").send("DELETE", NODE)
            await connections.close()
            events = {one["reason"] for one in api.list(EVENTS, "default")}
            return [one.message for one in loaded.warnings], sorted(events)

    warnings, events = asyncio.run(asyncio.wait_for(scenario(), 90))
    assert warnings == []
    assert [(one.outcome, one.why) for one in steps] == [(Outcome.MOVED, "")]
    assert "RemovePodsViolatingNodeTaints" in events
