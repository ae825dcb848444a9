"""Capacity queues: a tree of quotas that decides which pod is next and which pods are victims.

Read `tree.py` first: it has the queues, their groups and the functions for entitlement, share, room and
order. `users.py` has limits by user and group, `victims.py` and `quota.py` the choice of victims. Each
dialect is a folder of its own that builds the tree from its configuration (`yunikorn/`). Nothing here depends
on nodes, and nothing below depends on queues.
"""
