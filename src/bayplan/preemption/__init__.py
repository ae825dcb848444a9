"""Who would have to go: the search for victims, over all nodes at once and without doing anything.

`evaluation.py` is the way in. It is part of what plugin authors are offered, because a preemption policy of
one's own is among the plugins people need most.
"""
