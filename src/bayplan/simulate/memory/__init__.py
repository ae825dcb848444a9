"""A cluster API in memory, for benchmarks, recorded runs, the fault run and tests.

`MemoryStore` keeps typed objects and the history that watchers read. `MemoryCluster` implements `ClusterAPI`
on it, so a scheduler runs against it without a network or a disk (both in `store.py`). It is as fast as
possible and does only what a scheduler needs of an API server. The API server that kubectl can talk to is
`bayplan.embedded.server`.
"""
