"""The four kinds of patches: JSON and merge (`plain.py`), strategic merge, and server-side apply."""
