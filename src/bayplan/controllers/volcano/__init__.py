"""Jobs of Volcano (batch.volcano.sh) on a cluster without Volcano: the decisions of their controller.

- `spec.py`: what a Job asks for, with the defaults and checks of Volcano's webhooks
- `objects.py`: its pods and its PodGroup
- `pods.py`: the counts of its pods
- `jobs.py`: events, policies and phases

Queues and the order of jobs are the scheduler's (`queues/volcano/`).
"""
