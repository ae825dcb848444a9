"""The search for preemption victims, over all nodes at once and without side effects.

Start with `evaluation.py`. It is part of the plugin API, because custom preemption policies are common
plugins.
"""
