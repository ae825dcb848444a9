"""Tables for `kubectl get`: `printer.py` creates them, `pod_rows.py` and others have the columns of kinds."""
