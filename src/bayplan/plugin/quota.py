"""Quotas: a tree of queues with guarantees and ceilings, what is used of them, and what it would be.

This is the accounting of capacity queues (`bayplan.queues`), for plugins whose quotas have another source.
"""

from bayplan.queues.amounts import Amounts as Amounts
from bayplan.queues.amounts import add_to as add_to
from bayplan.queues.amounts import first_exceeded as first_exceeded
from bayplan.queues.model import Queue as Queue
from bayplan.queues.tree import charge as charge
from bayplan.queues.tree import refund as refund
from bayplan.queues.victims import Hypothesis as Hypothesis
