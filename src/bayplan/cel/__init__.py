"""CEL, the Common Expression Language, as Kubernetes offers it to device selectors.

    source ─► lexer, parser, macros ─► syntax ─► checker ─► types and overloads ─┬─► planner ─► closures
                                                                                └─► estimate ─► greatest cost

Nothing here knows about scheduling; only `device.py` knows what a device is. Results, error texts and costs
equal those of upstream's implementation, which is what the tests compare.
"""

from bayplan.cel.device import COST_LIMIT, DeviceSelector, Evaluation, compile_selector, device_variables
from bayplan.cel.errors import CelError, CompileError, EvaluationError

__all__ = [
    "COST_LIMIT",
    "CelError",
    "CompileError",
    "DeviceSelector",
    "Evaluation",
    "EvaluationError",
    "compile_selector",
    "device_variables",
]
