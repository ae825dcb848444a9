"""Descheduling: pods are evicted from nodes where they should not be, or moved where they are better.

policy.py        DeschedulerPolicy v1alpha2; arguments in args.py, decoded as Go does by go_json.py
table.py         the cluster as columns
default_evictor.py, node_fit.py   which pods may be evicted, and upstream's estimate of whether they fit
plugin.py        what strategies are given; strategies/ has those of descheduler
eviction.py      limits, requests, events and counts
descheduler.py   one cycle: the strategies of all profiles, in order
"""
