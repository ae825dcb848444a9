"""The scheduling queue: which pods wait, for what, and who is next. Start with `queue.py`."""
