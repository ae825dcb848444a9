"""Tables for `kubectl get`: `printer.py` makes them, `pod_rows.py` and `workload_rows.py` know the kinds."""
