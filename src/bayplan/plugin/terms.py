"""(Anti-)affinity terms of pods, and which pods carry them."""

from bayplan.api.pod import (
    PodAffinityTerm,
)
from bayplan.api.selectors import (
    NOTHING,
)
from bayplan.state.terms import (
    AffinityTerm,
    CarriedTerm,
    MatchingTerms,
    TermCarriers,
    TermKind,
    parse_terms,
    pod_terms,
)

__all__ = [
    "NOTHING",
    "AffinityTerm",
    "CarriedTerm",
    "MatchingTerms",
    "PodAffinityTerm",
    "TermCarriers",
    "TermKind",
    "parse_terms",
    "pod_terms",
]
