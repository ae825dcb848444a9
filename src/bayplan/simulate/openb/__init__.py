"""The openb experiment: GPU-sharing policies on a trace of Alibaba's production cluster.

trace.py     the nodes and pods of a trace, from its CSV files
orders.py    in which order pods arrive, and in which order nodes are listed
cluster.py   the trace as nodes, pods and a scheduler with one policy
run.py       one run: every pod arrives once and stays
curves.py    what is measured, by the share of the cluster that was requested
plot.py      the curves as an SVG file
"""
