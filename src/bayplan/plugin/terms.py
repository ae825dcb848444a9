"""(Anti-)affinity terms of pods, and which pods carry them."""

from bayplan.api.pod import (
    PodAffinityTerm,
)
from bayplan.snapshot.terms import (
    AffinityTerm,
    CarriedTerm,
    MatchingTerms,
    TermCarriers,
    TermKind,
    parse_terms,
    pod_terms,
)

__all__ = [
    "AffinityTerm",
    "CarriedTerm",
    "MatchingTerms",
    "PodAffinityTerm",
    "TermCarriers",
    "TermKind",
    "parse_terms",
    "pod_terms",
]
