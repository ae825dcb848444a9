"""Node affinity and node selectors, for one node and for all rows."""

from bayplan.api.meta import (
    NodeSelector,
    NodeSelectorTerm,
)
from bayplan.api.node_selectors import (
    NAME_FIELD,
    CompiledTerm,
    PreferredTerm,
    RequiredNodeAffinity,
    compile_preferred,
    compile_terms,
    compile_terms_strict,
    required_node_affinity,
    term_matches,
    terms_match,
)
from bayplan.api.pod import (
    Affinity,
    NodeAffinity,
)
from bayplan.state.node_matching import (
    preference_of_rows,
    rows_matching,
    rows_matching_selector,
    rows_matching_term,
    rows_matching_terms,
)

__all__ = [
    "NAME_FIELD",
    "Affinity",
    "CompiledTerm",
    "NodeAffinity",
    "NodeSelector",
    "NodeSelectorTerm",
    "PreferredTerm",
    "RequiredNodeAffinity",
    "compile_preferred",
    "compile_terms",
    "compile_terms_strict",
    "preference_of_rows",
    "required_node_affinity",
    "rows_matching",
    "rows_matching_selector",
    "rows_matching_term",
    "rows_matching_terms",
    "term_matches",
    "terms_match",
]
