"""Nodes and pods with GPUs."""

from __future__ import annotations

import json
from typing import Any

from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.config import KubeSchedulerConfiguration, parse_config
from bayplan.plugins.library.gpu_sharing import FGD, FGDArgs
from bayplan.plugins.library.gpu_sharing.request import GPU_COUNT, GPU_INDEX, GPU_MILLI, GPU_MODEL
from bayplan.scheduler.plugin_sources import catalog_with
from bayplan.testing.builders import make_node, make_pod


def gpu_node(name: str = "n", gpus: int = 2, *, model: str = "", **fields: Any) -> Node:
    labels = {GPU_MODEL: model} if model else {}
    fields.setdefault("cpu", "64")
    return make_node(name, resources={GPU_COUNT: gpus} if gpus else {}, labels=labels, **fields)


def gpu_pod(
    name: str = "p", count: int = 1, milli: int = 1000, *, models: str = "", on: str = "", **fields: Any
) -> Pod:
    """`on`: the devices that it was assigned."""
    annotations = {GPU_COUNT: str(count), GPU_MILLI: str(milli)}
    if models:
        annotations[GPU_MODEL] = models
    if on:
        annotations[GPU_INDEX] = on
    fields.setdefault("cpu", "1")
    return make_pod(name, annotations=annotations, **fields)


def fgd_config(args: FGDArgs) -> KubeSchedulerConfiguration:
    """The default profile, with arguments for FGD."""
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"pluginConfig": [{"name": "FGD", "args": args.to_wire()}]}],
    }
    return parse_config(json.dumps(config), catalog=catalog_with([FGD]))
