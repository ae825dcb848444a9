"""A whole cluster in this process: API server, controllers, simulated kubelets, scheduler.

`cluster.py` puts the parts together, `manifests.py` brings objects into it, `decisions.py` says what the
scheduler does, and `screen.py` shows it. `bayplan up` is all of this on a terminal.
"""
