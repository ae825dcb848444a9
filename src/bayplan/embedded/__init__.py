"""The embedded cluster of `bayplan up`: an API server, controllers and simulated kubelets in one process.

- `server/`: the API server. Documents (JSON) on disk, served over HTTPS to kubectl and any other client.
- `controllers/`: the controllers that create pods from workloads, and the loop that runs them.
- `kubelets/`: simulated nodes and what their pods do.
- `up/`: starts these parts together with a scheduler, and displays the result.

Benchmarks, recorded runs and the fault run use the in-memory API of `bayplan.simulate.memory` instead.
"""
