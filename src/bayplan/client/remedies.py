"""What to do about an error: a sentence for the reader of the log.

What the API server says is precise and seldom helpful: `Unauthorized`. Here stands what people then find out
by searching.
"""

from __future__ import annotations

from typing import Final

from bayplan.client.api_errors import NotServedError
from bayplan.errors import APIError, ForbiddenError, UnauthorizedError

UNAUTHORIZED: Final = (
    "The API server does not accept our credentials: see whether the token or certificate has expired, "
    "and whether the kubeconfig is of this cluster"
)
ANONYMOUS: Final = (
    "We have shown no credentials: the kubeconfig's user has none, "
    "or they were not sent because the server's address is not https"
)
FORBIDDEN: Final = (
    "Bind this user to the ClusterRoles system:kube-scheduler and system:volume-scheduler, "
    "or to a role that allows what was refused"
)
NOT_SERVED: Final = (
    "Install the definition of this kind, upgrade the API server, or disable the plugin that needs it"
)
NOT_TRUSTED: Final = (
    "The certificate authority in the kubeconfig has to be the one of the API server's certificate, "
    "and the server's address (or tls-server-name) one of the names in it"
)
NOT_PLAIN: Final = "The address of the API server has to begin with https://"
NOT_THERE: Final = "See whether the API server runs, and whether its address is right"


def what_to_do(error: APIError) -> str:
    """Empty where trying again is all there is to do."""
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
    """An error with what to do about it."""
    advice = what_to_do(error)
    return f"{str(error).rstrip('.')}. {advice}" if advice else str(error)
