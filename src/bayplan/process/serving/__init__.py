"""The HTTPS server of a scheduler: probes, metrics and configuration, with authentication and authorization.

    settings.py            where to listen and whom to trust, from flags; the listening sockets
    server.py              `SecureServer`: from a connection to a response
    pages.py               the paths; `Routes` is what a process provides for them
    access.py              authentication and authorization of a request
    client_authorities.py  CAs of client certificates, from files and from the cluster
    tls.py                 the TLS side of a connection, and our own certificate

This package does not depend on the scheduler: it is passed values and functions. The behaviour is that of
kube-scheduler v1.36 and v1.37. Nothing is imported here: settings and sockets are needed at once when a
process starts, the rest (aiohttp, cryptography) takes long to import and is needed later.
"""
