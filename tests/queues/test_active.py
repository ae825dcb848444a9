"""Which pod is popped next, where histories of `test_properties.py` do not come by."""

from __future__ import annotations

from bayplan.api.pod import Pod
from bayplan.queues.active import CapacityQueues
from bayplan.queues.yunikorn.build import Partition
from bayplan.queues.yunikorn.checks import load
from bayplan.scheduling_queue.queued import QueuedPod
from bayplan.state.cluster import Cluster
from tests.queues.building import queued_pod

ONE_APPLICATION = """
partitions:
- name: default
  queues:
  - name: root
    submitacl: '*'
    queues:
    - {name: a, maxapplications: 1}
"""


def test_pods_follow_the_first_task_of_their_group() -> None:
    """Its application waits for the end of another one, until one of its pods has a node all the same."""
    cluster = Cluster()
    partition = Partition(load(ONE_APPLICATION).partitions[0])
    queues = CapacityQueues(partition, cluster.pod_infos.of, lambda: {"cpu": 8000, "pods": 10})

    def pushed(pod: Pod) -> QueuedPod:
        info = QueuedPod(pod, pod.key, 0.0, 0)
        queues.push(info, ())
        return info

    queues.charge(queued_pod("x0", "a", app="x"), "n")
    first, second = (pushed(queued_pod(name, "a", app="y")) for name in ("y0", "y1"))
    assert queues.pop() is None
    queues.remove(first)
    queues.charge(first.pod, "n")
    assert queues.pop() is second
