"""The HTTPS server of a scheduler: probes, metrics and what it was started with, for those who may see it.

    settings.py         where to listen and whom to believe: plain values
    server.py           `SecureServer`: from a connection to an answer
    routes.py           which path shows what; `Routes` is what a process has to show
    health.py           /healthz, /livez, /readyz and their checks
    component_pages.py  /statusz, /flagz and /configz
    access.py           who is asking, and may they? Both questions of one request
    authentication.py   front proxies, client certificates, tokens
    authorization.py    open paths, and reviews by the API server
    reviews.py          asking the API server about tokens and rights, and remembering its answers
    client_authorities.py  whose certificates count, from files and from the cluster
    certificates.py     what we show ourselves with; made where none is given
    tls.py              the TLS side of a connection

Nothing here knows the scheduler: it is handed values and functions. The behaviour is that of kube-scheduler
v1.36.
"""

from bayplan.serving.access import AccessControl, delegated_access
from bayplan.serving.health import HealthCheck
from bayplan.serving.routes import About, Routes
from bayplan.serving.server import SecureServer
from bayplan.serving.settings import (
    AuthenticationSettings,
    AuthorizationSettings,
    NamedCertificate,
    ProxySettings,
    ServingSettings,
)

__all__ = [
    "About",
    "AccessControl",
    "AuthenticationSettings",
    "AuthorizationSettings",
    "HealthCheck",
    "NamedCertificate",
    "ProxySettings",
    "Routes",
    "SecureServer",
    "ServingSettings",
    "delegated_access",
]
