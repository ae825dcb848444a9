"""Error responses in the form of the API."""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web


def status_response(
    code: int, reason: str, message: str, details: dict[str, Any] | None = None, *, pretty: bool = False
) -> web.Response:
    """A Status that describes the error; `pretty` for people."""
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        **({} if details is None else {"details": details}),
        "code": code,
    }
    return web.Response(
        status=code,
        text=json.dumps(status, indent=2) if pretty else json.dumps(status, separators=(",", ":")) + "\n",
        content_type="application/json",
        headers={"X-Content-Type-Options": "nosniff"},
    )
