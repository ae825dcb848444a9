"""The HTTP extender protocol: webhooks that filter, prioritize, preempt and bind.

A scheduling cycle yields a request (`requests.py`) and is resumed with what `ExtenderChain.answer` says:

    requests → chain → extender → wire, node_json → client → HTTP

Every part knows only what stands to its right.
"""

from bayplan.extender.chain import ExtenderChain, build_chain
from bayplan.extender.errors import ExtenderError
from bayplan.extender.extender import Extender, FilterAnswer
from bayplan.extender.node_json import ObjectJSON, RawObjects
from bayplan.extender.requests import (
    EXTENDER,
    FilterRequest,
    FilterResponse,
    PreemptRequest,
    PreemptResponse,
    PrioritizeRequest,
    PrioritizeResponse,
    Request,
    Response,
)
from bayplan.extender.view import ClusterView, SnapshotView

__all__ = [
    "EXTENDER",
    "ClusterView",
    "Extender",
    "ExtenderChain",
    "ExtenderError",
    "FilterAnswer",
    "FilterRequest",
    "FilterResponse",
    "ObjectJSON",
    "PreemptRequest",
    "PreemptResponse",
    "PrioritizeRequest",
    "PrioritizeResponse",
    "RawObjects",
    "Request",
    "Response",
    "SnapshotView",
    "build_chain",
]
