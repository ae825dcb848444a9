"""The pages of the extension points, made from the protocols.

`python -m tests.docs.extension_point_pages` writes them to docs/extension-points.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from pathlib import Path
from typing import Any, Final

from bayplan.framework import plugin_api as api
from bayplan.framework.points import Point
from bayplan.runtime.profile import METHODS

FOLDER: Final = Path(__file__).parents[2] / "docs" / "extension-points"

PROTOCOLS: Final[dict[Point, tuple[Any, tuple[Any, ...]]]] = {
    Point.PRE_ENQUEUE: (api.PreEnqueuePlugin, ()),
    Point.QUEUE_SORT: (api.QueueSortPlugin, ()),
    Point.PRE_FILTER: (api.PreFilterPlugin, (api.AddRemovePodPlugin,)),
    Point.FILTER: (api.FilterPlugin, (api.NodesAffectedByPodsPlugin,)),
    Point.POST_FILTER: (api.PostFilterPlugin, ()),
    Point.PRE_SCORE: (api.PreScorePlugin, ()),
    Point.SCORE: (api.ScorePlugin, (api.NormalizePlugin,)),
    Point.RESERVE: (api.ReservePlugin, ()),
    Point.PERMIT: (api.PermitPlugin, ()),
    Point.PRE_BIND: (api.PreBindPlugin, ()),
    Point.BIND: (api.BindPlugin, ()),
    Point.POST_BIND: (api.PostBindPlugin, ()),
}
"""For each point its protocol and the optional ones beside it, in the order of the points."""

HEAD: Final = """# Extension points

In the order in which they are called. A plugin takes part in a point by having its method; the pages are
made from the protocols in `bayplan.plugin`. The [tutorial](../plugin-tutorial.md) shows how to use them.

| extension point | method | in the configuration | |
|---|---|---|---|
"""


def file_name(point: Point) -> str:
    return f"{re.sub(r'(?<=[a-z])(?=[A-Z])', '-', point.value).lower()}.md"


def pages() -> dict[str, str]:
    """All pages by file name."""
    made = {file_name(point): _page(point) for point in PROTOCOLS}
    rows = [
        f"| [{point}]({file_name(point)}) | `{METHODS[point]}` | `{point.config_key}` "
        f"| {_summary(protocol)} |"
        for point, (protocol, _) in PROTOCOLS.items()
    ]
    made["README.md"] = HEAD + "\n".join(rows) + "\n"
    return made


def _page(point: Point) -> str:
    protocol, others = PROTOCOLS[point]
    parts = [
        f"# {point}",
        f"Method `{METHODS[point]}`, protocol `{protocol.__name__}`, "
        f"in the configuration `{point.config_key}`.",
        _text(protocol),
        _signatures(protocol),
    ]
    if point is Point.FILTER:
        parts.append(_node_method("filter_node", "`unschedulable(reason)`, `unresolvable(reason)` or None"))
    if point is Point.SCORE:
        parts.append(_node_method("score_node", "an integer from 0 to 100"))
    if others:
        parts.append("## Optional methods")
    for other in others:
        parts += [f"### {other.__name__}", _text(other), _signatures(other)]
    parts.append("[All extension points](README.md)")
    return "\n\n".join(parts) + "\n"


def _node_method(method: str, returns: str) -> str:
    return f"A `NodePlugin` implements `{method}(state, pod, node)` instead, which returns {returns}."


def _summary(protocol: Any) -> str:
    return _text(protocol).split("\n", 1)[0]


def _text(protocol: Any) -> str:
    return inspect.cleandoc(protocol.__doc__)


def _signatures(protocol: Any) -> str:
    """The methods as they are written in the protocol, each on lines of at most 110 characters."""
    lines = []
    for name, method in vars(protocol).items():
        if name.startswith("_") or not inspect.isfunction(method):
            continue
        source = textwrap.dedent(inspect.getsource(method))
        lines.append(re.sub(r":\s*\.\.\.\s*$", "", source.strip()))
        if method.__doc__:
            lines[-1] = lines[-1].split('"""')[0].rstrip().removesuffix(":")
    return "```text\n" + "\n".join(lines) + "\n```"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
