"""The race: the same backlog, drained by kube-scheduler and by bayplan in turns. `make race`.

course.py the workloads: a cluster with a backlog, created once and restored before each run
heat.py     one scheduler drains it: how fast, at what cost
table.py    results as a table and as JSON lines
__main__.py which heats are run
steady.py   what each scheduler costs per pod at a constant, low rate: `make steady`
"""
