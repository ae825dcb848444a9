"""The fields of a scenario file, as docs/simulate.md describes them.

Records only have types here; `reading.py` checks what types cannot express. Durations stay text (`30s`,
`1h30m`) until they are used, so that errors can show them as they were written.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from bayplan.api.meta import OWN_API_VERSION, ResourceList
from bayplan.api.node import Taint

KIND: Final = "Scenario"

Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
"""A number of nodes or pods. The limit is there for typing errors: each costs memory."""
Positive = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]

POD: Final = "Pod"
JOB: Final = "Job"
GANG: Final = "Gang"
"""A PodGroup of Coscheduling, by its plugin."""
POD_GROUP: Final = "PodGroup"
"""One of Kubernetes, with the feature gate GenericWorkload."""
DEPLOYMENT: Final = "Deployment"
ALL_NODES: Final = "*"


class Part(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Base class of all parts: a field that is not known is an error."""


class Metadata(Part, frozen=True):
    name: str = ""


class Uniform(Part, frozen=True):
    min: str
    max: str


class Lognormal(Part, frozen=True):
    median: str
    sigma: float


class Distribution(Part, frozen=True):
    """Exactly one field is set."""

    fixed: str | None = None
    exponential: str | None = None
    """The mean."""
    uniform: Uniform | None = None
    lognormal: Lognormal | None = None


class Rate(Part, frozen=True):
    """One of the two: the time between two arrivals, or arrivals per hour. For Poisson these are means."""

    every: str | None = None
    per_hour: float | None = None


class Trace(Part, frozen=True):
    file: str
    format: Literal["csv", "openb"] = "csv"


class Arrivals(Part, frozen=True):
    """When a workload arrives: one of `at`, `constant`, `poisson` and `trace`; default: at the start."""

    at: tuple[str, ...] | None = None
    constant: Rate | None = None
    poisson: Rate | None = None
    trace: Trace | None = None
    start: str = "0s"
    end: str | None = None
    count: Count | None = None


class Workload(Part, frozen=True):
    """Pods of one template. `kind` says what arrives: single pods, or their owner."""

    name: str
    kind: Literal["Pod", "Job", "Gang", "PodGroup", "Deployment"] = "Pod"
    namespace: str = "default"
    arrivals: Arrivals = Arrivals()
    run_time: str | Distribution | None = None
    """Of a pod, or the lifetime of a Deployment. None: until the end of the simulation."""
    replicas: Count | None = None
    completions: Positive | None = None
    parallelism: Positive | None = None
    size: Positive | None = None
    min_member: Positive | None = None
    template: dict[str, Any] = {}
    """A PodTemplateSpec: metadata and spec of the pods."""


class NodeGroup(Part, frozen=True):
    """Nodes with equal resources, named `<name>-<number>`."""

    name: str
    count: Count
    allocatable: ResourceList = {}
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    zones: tuple[str, ...] = ()
    """Values of the zone label, given to the nodes in turn."""


class ClusterSpec(Part, frozen=True):
    files: tuple[str, ...] = ()
    """Files or directories with API objects; assigned pods run until the end."""
    nodes: tuple[NodeGroup, ...] = ()
    openb: str | None = None
    """A node list of the openb trace."""


class SchedulerPerf(Part, frozen=True):
    """A workload of Kubernetes' benchmark scheduler_perf."""

    file: str
    test_case: str
    workload: str
    run_time: str | Distribution | None = None
    """Of all its pods. None: until the end of the simulation."""


class Failure(Part, frozen=True):
    """Nodes fail at random and recover."""

    mean_time_between: str
    """Between two failures of one node: the mean of an exponential distribution."""
    nodes: str = ALL_NODES
    """The name of a group, or `*`."""
    repair_time: str | Distribution = "30m"


class Scale(Part, frozen=True):
    workload: str
    replicas: Count


class ChangeNodes(Part, frozen=True):
    """Nodes by name, or a number of nodes of a group: those with the highest numbers."""

    group: str | None = None
    count: Positive | None = None
    names: tuple[str, ...] = ()


class FailNodes(ChangeNodes, frozen=True):
    duration: str = "30m"


class Event(Part, frozen=True):
    """Something that happens at a given time: exactly one of the fields after `at`."""

    at: str
    scale: Scale | None = None
    add_nodes: ChangeNodes | None = None
    remove_nodes: ChangeNodes | None = None
    fail_nodes: FailNodes | None = None


class Scenario(Part, frozen=True):
    api_version: str = OWN_API_VERSION
    kind: str = KIND
    metadata: Metadata = Metadata()
    duration: str = "24h"
    seed: int = 0
    sample_interval: str | None = None
    cluster: ClusterSpec = ClusterSpec()
    workloads: tuple[Workload, ...] = ()
    scheduler_perf: SchedulerPerf | None = None
    failures: tuple[Failure, ...] = ()
    events: tuple[Event, ...] = ()
