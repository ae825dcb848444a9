"""Real programs on loopback: built (`programs.py`), started and stopped for sure (`process.py`), put together
to a control plane (`control_plane.py`) and driven by a scheduler (`schedulers.py`)."""
