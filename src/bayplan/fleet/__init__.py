"""Several clusters: which of them a workload goes to, how many replicas each gets, and why.

karmada/     what karmada-scheduler decides, as functions of values; read its docstring first
"""
