"""The embedded API server. So far its objects in memory (`store.py`), for a scheduler in this process."""
