"""YuniKorn's dialect: queues.yaml, placement rules, labels and annotations of pods.

`config.py` reads a configuration, `checks.py` says what YuniKorn would say about it, `build.py` makes the
tree of it, `placement.py` finds the queue of an application, and `pods.py` the application of a pod.
"""
