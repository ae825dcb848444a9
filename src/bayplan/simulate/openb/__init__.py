"""The openb experiment: GPU-sharing policies on a trace of Alibaba's production cluster.

trace.py        the nodes and pods of a trace, and the order in which they arrive, from CSV files or a seed
experiment.py   the trace as nodes, pods and a scheduler with one policy; a run, and what is measured
"""
