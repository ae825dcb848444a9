"""A whole cluster in this process: API server, controllers, simulated kubelets, scheduler.

`cluster.py` puts the parts together and `manifests.py` brings objects into it. `outcomes.py` records what the
scheduler made of each pod, `report.py` groups that, `screen.py` shows it: on a terminal (`terminal.py`) as a
page, elsewhere as lines. `bayplan up` is all of this as a command.
"""
