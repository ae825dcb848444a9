"""Several clusters: which of them a workload goes to, how many replicas each gets, and why.

members.py        member clusters, loaded from contexts and files
room.py           how many replicas fit into a member: exactly, and by Karmada's estimates
placing.py        workloads, one after the other
outages.py        what moves if a member is drained or lost
control_plane.py  Clusters, policies and bindings of a Karmada control plane
printing.py       what the commands print
estimator/        Karmada's scheduler-estimator, with the numbers of the members' schedulers
karmada/          what karmada-scheduler decides, as functions of values; read its docstring first
"""
