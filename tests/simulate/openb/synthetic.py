"""A small trace that is written for a test, and the same experiment without bayplan's framework."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from bayplan.plugins.library.gpu_sharing import policies
from bayplan.plugins.library.gpu_sharing.policies import Fragmentation
from bayplan.plugins.library.gpu_sharing.request import GpuRequest, models_in
from bayplan.simulate.openb.experiment import typical_pods
from bayplan.simulate.openb.trace import NODES_FILE, PODS_FILE, Orders, Trace

POD_HEADER = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos"
REQUESTS = [(0, 0), (1, 320), (1, 470), (1, 810), (1, 1000), (2, 1000), (4, 1000)]


def write_trace(directory: Path, *, nodes: int = 24, pods: int = 60, seed: int = 1) -> Path:
    rng = random.Random(seed)
    lines = ["sn,cpu_milli,memory_mib,gpu,model"]
    for number in range(nodes):
        gpus = rng.choice([1, 2, 4, 8])
        lines.append(f"node-{number:02},{rng.choice([16000, 64000, 96000])},262144,{gpus},{rng.choice('AB')}")
    (directory / NODES_FILE).write_text("\n".join(lines) + "\n")
    lines = [POD_HEADER]
    for number in range(pods):
        gpus, milli = rng.choice(REQUESTS)
        spec = rng.choice(["", "", "A", "A|B"])
        cpu, memory = rng.choice([2000, 4000, 8000]), rng.choice([1024, 65536])
        lines.append(f"pod-{number:03},{cpu},{memory},{gpus},{milli},{spec},LS")
    (directory / PODS_FILE).write_text("\n".join(lines) + "\n")
    return directory


def replay_plainly(trace: Trace, orders: Orders, policy: str) -> tuple[int, int]:
    """GPU in use and failed pods in the end: the experiment as arrays, every node scored for every pod."""
    nodes = [trace.nodes[index] for index in orders.nodes]
    cpu = np.array([node.cpu_milli for node in nodes])
    memory = np.array([node.memory_mib for node in nodes])
    count = np.array([node.gpus for node in nodes])
    free = np.where(np.arange(8) < count[:, None], 1000, 0)
    kinds = np.zeros((len(nodes), 9), dtype=np.int64)
    fragmentation = Fragmentation(typical_pods(trace.pods))
    access = fragmentation.access([node.model for node in nodes])
    used = failed = 0
    for index in orders.arrivals:
        pod = trace.pods[index]
        request = GpuRequest(pod.gpus, pod.gpu_milli, models_in(pod.gpu_spec))
        model = np.array([not request.models or node.model in request.models for node in nodes])
        fits = (cpu >= pod.cpu_milli) & (memory >= pod.memory_mib) & policies.enough_devices(free, request)
        fits &= model
        if not fits.any():
            failed += 1
            continue
        device = None
        match policy:
            case "DotProd":
                scores = policies.dot_product(cpu, free, pod.cpu_milli, request)
            case "BestFit":
                scores = policies.best_fit(cpu, free, pod.cpu_milli, request)
            case "GpuClustering":
                scores = policies.clustering(free, kinds, request)
            case "GpuPacking":
                scores = policies.packing(free, count, request)
            case _:
                scores, device = policies.fgd(fragmentation, cpu, free, access, pod.cpu_milli, request)
        row = int(np.where(fits, scores, -1).argmax())
        cpu[row] -= pod.cpu_milli
        memory[row] -= pod.memory_mib
        if request.count:
            chosen = policies.best_fit_devices(free[row], request)
            if device is not None and request.is_share:
                chosen = (int(device[row]),)
            free[row, list(chosen)] -= request.milli
            kinds[row, request.kind] += 1
            used += request.total_milli
    return used, failed
