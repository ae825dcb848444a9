"""The HTTPS server of a scheduler: probes, metrics and configuration, with authentication and authorization.

    settings.py         where to listen and whom to trust: plain values
    ports.py            the listening sockets
    server.py           `SecureServer`: from a connection to a response
    routes.py           the paths; `Routes` is what a process provides for them
    health.py           /healthz, /livez, /readyz and their checks
    component_pages.py  /statusz, /flagz and /configz
    access.py           authentication and authorization of a request
    authentication.py   front proxies, client certificates, tokens
    authorization.py    paths that are always allowed, and reviews by the API server
    reviews.py          TokenReviews and SubjectAccessReviews, and a cache of their results
    client_authorities.py  CAs of client certificates, from files and from the cluster
    certificates.py     our own certificate; self-signed if none is given
    tls.py              the TLS side of a connection

This package does not depend on the scheduler: it is passed values and functions. The behaviour is that of
kube-scheduler v1.36 and v1.37. Nothing is imported here: settings and ports are needed at once when a process
starts, the rest (aiohttp, cryptography) takes long to import and is needed later.
"""
