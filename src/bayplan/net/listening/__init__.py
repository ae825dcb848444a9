"""Listening for HTTP clients in bounded memory: the embedded API server and the serving port share it.

ports.py     listening sockets, before there is a server for them
limits.py    how many connections, and how long they may take; plain values
listener.py  `Listener`: from a socket to a connection, TLS included
server.py    `BoundedServer`: aiohttp's server with these limits
throttle.py  rate-limited log lines for what clients cause
bodies.py    the body of a request, read within its limits

Nothing is imported here: ports can be bound without aiohttp, which takes long to import.
"""
