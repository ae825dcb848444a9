"""Kubernetes' objects as frozen records, and what their texts mean: quantities, selectors, tolerations.

Nothing here knows about scheduling cycles, and nothing but `documents.py` does I/O (it reads files). Start
with `pod.py` for what a pod is, and with `decode.py` for where it comes from.
"""
