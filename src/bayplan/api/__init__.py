"""Kubernetes' objects as frozen records, and the meaning of their texts: quantities, selectors, tolerations.

Nothing here depends on scheduling, and only `documents.py` does I/O (it reads files). Start with `pod.py` for
the pod, and with `decode.py` for where objects come from.
"""
