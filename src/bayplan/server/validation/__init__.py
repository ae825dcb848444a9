"""Whether an object keeps the rules of its kind: problems with their fields, in Kubernetes' words.

Types and unknown fields have been looked at before (`schema.py`). This is about meaning: names, labels,
quantities, selectors, references between fields, and what may change after creation. It covers what
scheduling reads and what people get wrong; a rule that is missing lets an object through that a real server
would refuse, never the other way round.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from bayplan.server import kinds
from bayplan.server.kinds import Resource
from bayplan.server.statuses import FieldProblem
from bayplan.server.validation.metadata import metadata_problems, metadata_update_problems

Content = dict[str, Any]

_RULES: Final[dict[Resource, Callable[[Content], list[FieldProblem]]]] = {}
_UPDATE_RULES: Final[dict[Resource, Callable[[Content, Content], list[FieldProblem]]]] = {}


def new_problems(resource: Resource, content: Content) -> list[FieldProblem]:
    """What is wrong with an object that is to be created."""
    rule = _RULES.get(resource)
    return metadata_problems(resource, content) + (rule(content) if rule is not None else [])


def update_problems(
    resource: Resource, content: Content, old: Content, subresource: str
) -> list[FieldProblem]:
    """What is wrong with a new version of an object. What has not changed is not looked at again."""
    problems = metadata_update_problems(content, old)
    if content["metadata"].get("labels") != old["metadata"].get("labels"):
        problems += metadata_problems(resource, content)
    if subresource or (resource == kinds.PODS and content.get("spec") == old.get("spec")):
        return problems
    if (rule := _RULES.get(resource)) is not None:
        problems += rule(content)
    if (update_rule := _UPDATE_RULES.get(resource)) is not None:
        problems += update_rule(content, old)
    return problems
