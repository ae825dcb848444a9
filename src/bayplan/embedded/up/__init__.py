"""Everything behind `bayplan up`: the parts of an embedded cluster in one process, and their display.

`cluster.py` starts API server, controllers, kubelets and scheduler; `manifests.py` applies objects from
files. `outcomes.py` records the result of each scheduling attempt, `report.py` groups the results, and
`screen.py` displays them: as a page on a terminal (`terminal.py`), otherwise as lines.
"""
