"""Volcano's dialect: Queue objects, shares by proportion or by what is deserved, and reclaiming.

`accounts.py` has what a queue is entitled to, its share, its room and its place in the order. `drf.py` has
the shares of jobs, `jobs.py` their order, `victims.py` the choice of victims. `conf.py` reads
volcano-scheduler.conf.
"""
