"""The four kinds of patches: JSON, merge and strategic merge (`patches.py`), and server-side apply."""
