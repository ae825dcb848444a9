"""Everything behind `bayplan up`: the parts of an embedded cluster in one process, and their display.

`cluster.py` starts API server, controllers, kubelets and scheduler; `manifests.py` applies objects from
files, and `watched_files.py` reads files again that change. `report.py` records the result of each scheduling
attempt and groups pods by it, and `screen.py` displays them: as a page on a terminal, otherwise as lines.
"""
