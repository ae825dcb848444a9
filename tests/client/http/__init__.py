"""The client over real sockets, against a small API server (`api_server.py`)."""
