"""Listening for HTTP clients in bounded memory: the embedded API server and the serving port share it.

limits.py    how many connections, and how long they may take; plain values
listener.py  `Listener`: from a socket to a connection, TLS included
server.py    `BoundedServer`: aiohttp's server with these limits
throttle.py  rate-limited log lines for what clients cause
bodies.py    the body of a request, read within its limits
"""

from bayplan.listening.bodies import BodyTimeoutError, BodyTooLargeError, EncodedBodyError, read_body
from bayplan.listening.limits import Limits
from bayplan.listening.listener import Listener
from bayplan.listening.server import BoundedServer

__all__ = [
    "BodyTimeoutError",
    "BodyTooLargeError",
    "BoundedServer",
    "EncodedBodyError",
    "Limits",
    "Listener",
    "read_body",
]
