"""The client over real sockets, against an API server that is small but means it (`api_server.py`)."""
