"""The scheduling queue: pending pods, what they wait for, and which one is next. Start with `queue.py`."""
