"""The embedded server's HTTP face: `application.py` takes requests, the others each answer a kind of them."""
