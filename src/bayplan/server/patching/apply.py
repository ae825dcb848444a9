"""Server-side apply. So far only what creates an object or merges into it; ownership comes next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bayplan.server.kinds import Resource
from bayplan.server.statuses import RefusalError

if TYPE_CHECKING:
    from bayplan.server.objects import ObjectAPI

Content = dict[str, Any]


def apply_patch(
    api: ObjectAPI,
    resource: Resource,
    name: str,
    namespace: str,
    wanted: Content,
    *,
    manager: str,
    force: bool,
    subresource: str,
    dry_run: bool,
) -> tuple[Content, bool]:
    raise RefusalError("415: Unsupported Media Type", 415, reason="UnsupportedMediaType", details={})
