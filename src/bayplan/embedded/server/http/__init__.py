"""HTTP of the embedded server: `application.py` routes requests, the other modules handle them."""
