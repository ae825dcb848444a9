"""Preemption: hypotheses, dry runs and the choice of victims."""

from bayplan.framework.outcome import Diagnosis as Diagnosis
from bayplan.framework.outcome import Eviction as Eviction
from bayplan.framework.outcome import Nomination as Nomination
from bayplan.framework.outcome import fit_error as fit_error
from bayplan.preemption.choice import Candidates as Candidates
from bayplan.preemption.choice import ranked as ranked
from bayplan.preemption.evaluation import Evaluation as Evaluation
from bayplan.preemption.evaluation import Sampling as Sampling
from bayplan.preemption.evaluation import evaluate as evaluate
from bayplan.preemption.evaluation import eviction_on as eviction_on
from bayplan.preemption.evaluation import preemption_errors as preemption_errors
from bayplan.preemption.evaluation import preemption_result as preemption_result
from bayplan.preemption.evaluation import why_not as why_not
from bayplan.preemption.plugin import PreemptionPlugin as PreemptionPlugin
from bayplan.preemption.plugin import candidate_sampling as candidate_sampling
from bayplan.preemption.victims import DryRun as DryRun
from bayplan.preemption.victims import MayEvict as MayEvict
from bayplan.state.hypothesis import Hypothesis as Hypothesis
