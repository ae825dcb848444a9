"""Remedies: a sentence for the log that says what to do about an error.

The messages of the API server are precise but seldom helpful: `Unauthorized`.
"""

from __future__ import annotations

from typing import Final

from bayplan.client.api_errors import NotServedError
from bayplan.errors import APIError, ForbiddenError, UnauthorizedError

UNAUTHORIZED: Final = (
    "The API server does not accept the credentials: check whether the token or certificate has expired, "
    "and whether the kubeconfig is for this cluster"
)
ANONYMOUS: Final = (
    "No credentials were sent: the kubeconfig's user has none, or the server's address is not https"
)
FORBIDDEN: Final = (
    "Bind this user to the ClusterRoles system:kube-scheduler and system:volume-scheduler, "
    "or to a role that allows this request"
)
NOT_SERVED: Final = (
    "Install the definition of this kind, upgrade the API server, or disable the plugin that needs it"
)
NOT_TRUSTED: Final = (
    "The certificate authority in the kubeconfig must be the one that signed the API server's certificate, "
    "and the server's address (or tls-server-name) must be one of the names in it"
)
NOT_PLAIN: Final = "The address of the API server must begin with https://"
NOT_THERE: Final = "Check whether the API server is running, and whether its address is correct"


def remedy(error: APIError) -> str:
    """What to do about an error; empty if it is enough to retry."""
    text = str(error)
    match error:
        case UnauthorizedError():
            return UNAUTHORIZED
        case ForbiddenError():
            return ANONYMOUS if '"system:anonymous"' in text else FORBIDDEN
        case NotServedError():
            return NOT_SERVED
    if "failed to verify certificate" in text:
        return NOT_TRUSTED
    if "HTTP request to an HTTPS server" in text:
        return NOT_PLAIN
    if "dial tcp" in text:
        return NOT_THERE
    return ""


def explained(error: APIError) -> str:
    """The text of an error, with its remedy."""
    text = remedy(error)
    return f"{str(error).rstrip('.')}. {text}" if text else str(error)
