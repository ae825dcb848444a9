"""Authorization: system:masters may do everything, some paths are open to all, and the API server decides the
rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from bayplan.process.serving.reviews import ReviewCache, Reviews
from bayplan.process.serving.settings import AuthorizationSettings
from bayplan.process.serving.users import MASTERS, User


class Authorization:
    """Without `reviews` only the always-allowed paths are allowed."""

    def __init__(
        self, settings: AuthorizationSettings, reviews: Reviews | None, clock: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._reviews = reviews
        self._exact = frozenset(_path(path) for path in settings.open_paths if not path.endswith("*"))
        self._prefixes = tuple(_path(path[:-1]) for path in settings.open_paths if path.endswith("*"))
        self._results: ReviewCache[tuple[bool, str]] = ReviewCache(clock)

    async def allows(self, user: User, method: str, path: str) -> tuple[bool, str]:
        """Whether the user may do that, and the reason if not.

        Raises:
            APIError: the SubjectAccessReview failed.
        """
        if MASTERS in user.groups or _path(path) in self._exact or _path(path).startswith(self._prefixes):
            return True, ""
        if self._reviews is None:
            return False, ""
        reviews, settings, spec = self._reviews, self._settings, _spec(user, method, path)

        async def review() -> tuple[tuple[bool, str], float]:
            allowed, reason = await reviews.access(spec)
            return (allowed, reason), settings.allowed_seconds if allowed else settings.denied_seconds

        return await self._results.get(msgspec.json.encode(spec, order="sorted"), review)


def _path(path: str) -> str:
    return path.removeprefix("/")


def _spec(user: User, method: str, path: str) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "nonResourceAttributes": {"path": path, "verb": method.lower()},
        "user": user.name,
        "groups": list(user.groups),
    }
    if user.uid:
        spec["uid"] = user.uid
    if user.extra:
        spec["extra"] = {key: list(values) for key, values in user.extra.items()}
    return spec
