"""YuniKorn's dialect: queues.yaml, placement rules, labels and annotations of pods.

`config.py` reads a configuration, `checks.py` reports the errors that YuniKorn would report, `build.py`
builds the tree, `placement.py` finds the queue of an application, and `pods.py` the application of a pod.
"""
