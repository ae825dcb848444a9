"""Descheduling: evicts pods that should not be on their nodes, or moves them to better ones.

policy.py        DeschedulerPolicy v1alpha2; arguments in args.py, decoded as Go does by go_json.py
table.py         the cluster as columns
default_evictor.py, node_fit.py   which pods may be evicted, and upstream's estimate of whether they fit
plugin.py        the interface of strategies; strategies/ has those of descheduler
eviction.py      limits, requests, events and counts
descheduler.py   one cycle: the strategies of all profiles, in order
"""
