"""Preemption: hypotheses, dry runs and the choice of victims."""

from bayplan.framework.outcome import (
    Diagnosis,
    Eviction,
    Nomination,
    fit_error,
)
from bayplan.preemption.choice import (
    Candidates,
    ranked,
)
from bayplan.preemption.evaluation import (
    Evaluation,
    Sampling,
    evaluate,
    eviction_on,
    preemption_errors,
    preemption_result,
    why_not,
)
from bayplan.preemption.plugin import (
    PreemptionPlugin,
    candidate_sampling,
)
from bayplan.preemption.victims import (
    DryRun,
    MayEvict,
)
from bayplan.state.what_if import (
    Hypothesis,
)

__all__ = [
    "Candidates",
    "Diagnosis",
    "DryRun",
    "Evaluation",
    "Eviction",
    "Hypothesis",
    "MayEvict",
    "Nomination",
    "PreemptionPlugin",
    "Sampling",
    "candidate_sampling",
    "evaluate",
    "eviction_on",
    "fit_error",
    "preemption_errors",
    "preemption_result",
    "ranked",
    "why_not",
]
