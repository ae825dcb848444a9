"""The decisions of Kubernetes' controllers as functions: values in, desired objects and steps out.

Nothing here reads a store, writes, or reads the clock. Three callers carry the decisions out: the embedded
cluster on its API server (`embedded/controllers/`), what-if answers on a copy of a cluster
(`answers/whatif/`), and scenarios in virtual time (`simulate/scenarios/`).

- `pods.py`: states of pods, the order in which they are deleted, and pods from templates
- `workloads.py`: Deployments, StatefulSets, DaemonSets, Jobs
- `claims.py`: ResourceClaims of pods, claims of ephemeral volumes, provisioned volumes
- `volcano/`: Jobs of Volcano
- `nodes.py`: taints of nodes, and eviction by them
"""
