"""The HTTP extender protocol: webhooks that filter, prioritize, preempt and bind.

A scheduling cycle yields a request (`steps.py`) and is resumed with the answer of `ExtenderChain.answer`:

    steps → chain → extender → wire, node_json → client → HTTP

Each part imports only those to its right.
"""

from bayplan.extender.chain import ExtenderChain, build_chain
from bayplan.extender.errors import ExtenderError
from bayplan.extender.extender import Extender, FilterResult
from bayplan.extender.node_json import ObjectJSON, RawObjects
from bayplan.extender.view import ClusterView, SnapshotView
from bayplan.runtime.search import (
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

__all__ = [
    "EXTENDER",
    "ClusterView",
    "Extender",
    "ExtenderChain",
    "ExtenderError",
    "FilterRequest",
    "FilterResponse",
    "FilterResult",
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
