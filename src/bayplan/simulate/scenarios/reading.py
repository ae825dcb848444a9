"""Reads a scenario file and everything that it refers to; errors name file, line and field.

Everything is read and checked before the simulation starts: a mistake is reported in a second, and not after
half a simulated day.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from bayplan.answers.sources.files import read_cluster
from bayplan.api.decode import decode_object
from bayplan.api.defaults import with_defaults
from bayplan.api.documents import Document, read_documents
from bayplan.api.meta import OWN_API_VERSION, Object
from bayplan.api.names import dns_label_problems
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.api.reading import mismatched_types, problem_and_field, type_in_words, without_nulls
from bayplan.api.workloads import PriorityClass
from bayplan.errors import DecodeError, InputError
from bayplan.simulate.openb.experiment import make_node as make_openb_node
from bayplan.simulate.openb.trace import read_nodes
from bayplan.simulate.scenarios import schema
from bayplan.simulate.scenarios.inputs import TraceRow, make_node, read_trace, seconds
from bayplan.simulate.scenarios.scheduler_perf import Benchmark, read_benchmark
from bayplan.simulate.scenarios.schema import ALL_NODES, KIND, Scenario, Workload

MAX_SAMPLES: Final = 100_000
MAX_PER_HOUR: Final = 3_600_000
"""Arrivals of a workload. One each nanosecond would fill the memory before the first hour is over."""
SAMPLES: Final = 288
"""The number of samples by default: of a day, one every five minutes."""


ONLY_FOR: Final[Mapping[str, tuple[str, ...]]] = {
    "replicas": (schema.DEPLOYMENT,),
    "completions": (schema.JOB,),
    "parallelism": (schema.JOB,),
    "size": (schema.GANG, schema.POD_GROUP),
    "min_member": (schema.GANG, schema.POD_GROUP),
}


@dataclass(frozen=True, slots=True)
class LoadedScenario:
    """A scenario with everything that its files contain."""

    scenario: Scenario
    source: str
    duration: float
    sample_interval: float
    objects: tuple[Object, ...] = ()
    """The objects of the cluster's files, with defaults."""
    templates: dict[str, Pod] = field(default_factory=dict)
    """The pod of each workload, with defaults, without a name."""
    traces: dict[str, tuple[TraceRow, ...]] = field(default_factory=dict)
    """The rows of each workload that has a trace."""
    benchmark: Benchmark | None = None

    @property
    def has_groups(self) -> bool:
        """Whether pod groups of Kubernetes arrive, which need a feature gate."""
        return any(workload.kind == schema.POD_GROUP for workload in self.scenario.workloads)

    @property
    def name(self) -> str:
        return self.scenario.metadata.name or Path(self.source).stem


class InvalidFieldError(Exception):
    """A field is invalid; becomes a DecodeError with file and line."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(problem)
        self.path = path
        self.problem = problem


def read_scenario(path: Path, added: Sequence[Object] = ()) -> LoadedScenario:
    """Reads a scenario file, with all files that it names.

    `added` are further objects of its cluster; they replace objects of the same kind and name.

    Raises:
        InputError: a file is missing or malformed, or a field is invalid.
    """
    documents = list(read_documents(path))
    if len(documents) != 1 or not isinstance(documents[0].content, dict):
        raise DecodeError(f"expected one document of kind {KIND}", source=str(path))
    return load_scenario(documents[0], path.parent, added)


def load_scenario(document: Document, directory: Path, added: Sequence[Object] = ()) -> LoadedScenario:
    """The scenario of a document; files are relative to `directory`."""
    try:
        scenario = _decoded(document.content)
        return _Loader(scenario, document.source, directory, added).load()
    except InvalidFieldError as error:
        raise DecodeError(
            error.problem, source=document.source, line=document.line_of(error.path), field=error.path
        ) from None


def _decoded(content: Any) -> Scenario:
    for name, wanted in (("apiVersion", OWN_API_VERSION), ("kind", KIND)):
        if content.get(name) != wanted:
            raise InvalidFieldError(name, f"expected {wanted}, got {content.get(name)!r}")
    try:
        return msgspec.convert(without_nulls(content), Scenario)
    except msgspec.ValidationError as error:
        problem, path = problem_and_field(error)
        if (mismatch := mismatched_types(problem)) is not None:
            expected, actual = mismatch
            problem = f"expected {expected}, got {type_in_words(actual)}"
        raise InvalidFieldError(path, problem) from None


def _identity(item: Object) -> tuple[type[Object], str, str]:
    return type(item), item.namespace, item.name


def _is_of(node_name: str, group: str) -> bool:
    """Whether a group has, or could get, a node of this name."""
    name, _, number = node_name.rpartition("-")
    return name == group and number.isdecimal()


class _Loader:
    """Checks a scenario and reads its files."""

    def __init__(self, scenario: Scenario, source: str, directory: Path, added: Sequence[Object]) -> None:
        self._scenario = scenario
        self._source = source
        self._directory = directory
        self._added = added

    def load(self) -> LoadedScenario:
        scenario = self._scenario
        duration = self._positive(scenario.duration, "duration")
        interval = duration / SAMPLES
        if scenario.sample_interval is not None:
            interval = self._positive(scenario.sample_interval, "sampleInterval")
            if duration / interval > MAX_SAMPLES:
                raise InvalidFieldError("sampleInterval", f"there would be more than {MAX_SAMPLES:,} samples")
        objects = self._objects()
        self._check_nodes(objects)
        templates: dict[str, Pod] = {}
        traces: dict[str, tuple[TraceRow, ...]] = {}
        classes = [item for item in objects if isinstance(item, PriorityClass)]
        for i, workload in enumerate(scenario.workloads):
            path = f"workloads[{i}]"
            self._check_workload(workload, path)
            if workload.name in templates:
                raise InvalidFieldError(f"{path}.name", f"there are two workloads named {workload.name!r}")
            templates[workload.name] = self._template(workload, path, classes)
            trace = workload.arrivals.trace
            if trace is not None:
                traces[workload.name] = read_trace(self._path(trace.file), trace.format)
        self._check_events()
        benchmark = None
        wanted = scenario.scheduler_perf
        if wanted is not None:
            if wanted.run_time is not None:
                self._check_distribution(wanted.run_time, "schedulerPerf.runTime")
            benchmark = read_benchmark(self._path(wanted.file), wanted.test_case, wanted.workload)
        if not scenario.workloads and benchmark is None and not any(isinstance(one, Pod) for one in objects):
            raise InvalidFieldError("workloads", "there is nothing to schedule")
        return LoadedScenario(
            scenario,
            self._source,
            duration,
            interval,
            tuple(objects),
            templates,
            traces,
            benchmark,
        )

    # Files

    def _path(self, file: str) -> Path:
        return self._directory / file

    def _objects(self) -> list[Object]:
        files = [str(self._path(file)) for file in self._scenario.cluster.files]
        found = {_identity(item): item for item in (read_cluster(files).objects if files else ())}
        if self._scenario.cluster.openb is not None:
            nodes = [make_openb_node(node) for node in read_nodes(self._path(self._scenario.cluster.openb))]
            found.update((_identity(node), node) for node in nodes)
        found.update((_identity(item), item) for item in self._added)
        return list(found.values())

    def _template(self, workload: Workload, path: str, classes: Sequence[PriorityClass]) -> Pod:
        raw = dict(workload.template)
        if unknown := raw.keys() - {"metadata", "spec"}:
            name = min(unknown)
            raise InvalidFieldError(
                f"{path}.template.{name}", "unknown field; a template has metadata and spec"
            )
        metadata = raw.get("metadata") or {}
        if not isinstance(metadata, dict):
            raise InvalidFieldError(f"{path}.template.metadata", "expected a mapping")
        raw = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**metadata, "name": workload.name, "namespace": workload.namespace},
            "spec": raw.get("spec") or {"containers": [{"name": "main"}]},
        }
        try:
            pod = decode_object(raw)
            assert isinstance(pod, Pod)
            pod = with_defaults([*classes, pod])[-1]
        except InputError as error:
            raise InvalidFieldError(
                f"{path}.template{'.' if error.field else ''}{error.field}", error.problem
            ) from None
        assert isinstance(pod, Pod)
        if pod.spec.node_name:
            raise InvalidFieldError(f"{path}.template.spec.nodeName", "the scheduler sets it")
        return pod

    # Checks

    def _check_nodes(self, objects: Sequence[Object]) -> None:
        taken = {item.name for item in objects if isinstance(item, Node)}
        groups: set[str] = set()
        for i, group in enumerate(self._scenario.cluster.nodes):
            path = f"cluster.nodes[{i}]"
            self._check_name(group.name, f"{path}.name")
            if group.name in groups:
                raise InvalidFieldError(f"{path}.name", f"there are two groups named {group.name!r}")
            groups.add(group.name)
            try:
                make_node(group, 0)
            except InputError as error:
                raise InvalidFieldError(f"{path}.{error.field}", error.problem) from None
            clash = next((name for name in sorted(taken) if _is_of(name, group.name)), None)
            if clash is not None:
                raise InvalidFieldError(f"{path}.name", f"the files have a node {clash!r} already")

    def _check_workload(self, workload: Workload, path: str) -> None:
        self._check_name(workload.name, f"{path}.name")
        self._check_name(workload.namespace, f"{path}.namespace")
        for name, kinds in ONLY_FOR.items():
            if getattr(workload, name) is not None and workload.kind not in kinds:
                field_name = msgspec.structs.fields(Workload)
                shown = next(one.encode_name for one in field_name if one.name == name)
                raise InvalidFieldError(f"{path}.{shown}", f"only for kind {kinds[0]}, not {workload.kind}")
        size, needed = workload.size or 1, workload.min_member
        if needed is not None and needed > size:
            raise InvalidFieldError(f"{path}.minMember", f"must not exceed size, which is {size}")
        self._check_arrivals(workload, f"{path}.arrivals")
        if workload.run_time is not None:
            self._check_distribution(workload.run_time, f"{path}.runTime")

    def _check_arrivals(self, workload: Workload, path: str) -> None:
        arrivals = workload.arrivals
        ways = [
            name for name in ("at", "constant", "poisson", "trace") if getattr(arrivals, name) is not None
        ]
        if len(ways) > 1:
            raise InvalidFieldError(path, f"only one of {', '.join(ways)} can be set")
        for i, text in enumerate(arrivals.at or ()):
            self._seconds(text, f"{path}.at[{i}]")
        for name in ("constant", "poisson"):
            rate = getattr(arrivals, name)
            if rate is not None:
                self._check_rate(rate, f"{path}.{name}")
        self._seconds(arrivals.start, f"{path}.start")
        if arrivals.end is not None:
            self._seconds(arrivals.end, f"{path}.end")
        if arrivals.trace is not None:
            if workload.kind != schema.POD:
                raise InvalidFieldError(f"{path}.trace", f"only for kind Pod, not {workload.kind}")
            if workload.run_time is not None:
                raise InvalidFieldError(f"{path}.trace", "the trace has the run times; leave out runTime")

    def _check_rate(self, rate: schema.Rate, path: str) -> None:
        if (rate.every is None) == (rate.per_hour is None):
            raise InvalidFieldError(path, "set one of every and perHour")
        if rate.every is not None:
            if self._positive(rate.every, f"{path}.every") < 3600 / MAX_PER_HOUR:
                raise InvalidFieldError(f"{path}.every", f"must be at least {3600 / MAX_PER_HOUR:g}s")
        elif rate.per_hour is not None and not 0 < rate.per_hour <= MAX_PER_HOUR:
            raise InvalidFieldError(f"{path}.perHour", f"must be greater than 0 and at most {MAX_PER_HOUR}")

    def _check_distribution(self, times: str | schema.Distribution, path: str) -> None:
        if isinstance(times, str):
            self._seconds(times, path)
            return
        names = [name for name in times.__struct_fields__ if getattr(times, name) is not None]
        if len(names) != 1:
            raise InvalidFieldError(path, "set exactly one of fixed, exponential, uniform and lognormal")
        if times.fixed is not None:
            self._seconds(times.fixed, f"{path}.fixed")
        if times.exponential is not None:
            self._positive(times.exponential, f"{path}.exponential")
        if times.uniform is not None:
            low = self._seconds(times.uniform.min, f"{path}.uniform.min")
            if self._seconds(times.uniform.max, f"{path}.uniform.max") < low:
                raise InvalidFieldError(f"{path}.uniform.max", "must not be less than min")
        if times.lognormal is not None:
            self._positive(times.lognormal.median, f"{path}.lognormal.median")
            if not 0 <= times.lognormal.sigma <= 10:
                raise InvalidFieldError(f"{path}.lognormal.sigma", "must be between 0 and 10")

    def _check_events(self) -> None:
        scenario = self._scenario
        groups = {group.name for group in scenario.cluster.nodes}
        for i, failure in enumerate(scenario.failures):
            path = f"failures[{i}]"
            if failure.nodes != ALL_NODES:
                self._check_group(failure.nodes, groups, f"{path}.nodes")
            self._positive(failure.mean_time_between, f"{path}.meanTimeBetween")
            self._check_distribution(failure.repair_time, f"{path}.repairTime")
        for i, event in enumerate(scenario.events):
            path = f"events[{i}]"
            self._seconds(event.at, f"{path}.at")
            self._check_event(event, groups, path)

    def _check_event(self, event: schema.Event, groups: set[str], path: str) -> None:
        changes = {
            "addNodes": event.add_nodes,
            "removeNodes": event.remove_nodes,
            "failNodes": event.fail_nodes,
        }
        given = [name for name, change in changes.items() if change is not None]
        if len(given) + (event.scale is not None) != 1:
            raise InvalidFieldError(path, "set exactly one of scale, addNodes, removeNodes and failNodes")
        if event.scale is not None:
            deployments = {w.name for w in self._scenario.workloads if w.kind == schema.DEPLOYMENT}
            if event.scale.workload not in deployments:
                raise InvalidFieldError(
                    f"{path}.scale.workload", f"no Deployment is named {event.scale.workload!r}"
                )
            return
        change = changes[given[0]]
        assert change is not None
        path = f"{path}.{given[0]}"
        if isinstance(change, schema.FailNodes):
            self._seconds(change.duration, f"{path}.duration")
        if change.names:
            if change.group is not None or change.count is not None or event.add_nodes is not None:
                raise InvalidFieldError(f"{path}.names", "set either names, or group and count")
            return
        if change.group is None or change.count is None:
            raise InvalidFieldError(path, "set group and count, or names")
        self._check_group(change.group, groups, f"{path}.group")

    def _check_group(self, name: str, groups: set[str], path: str) -> None:
        if name not in groups:
            known = ", ".join(sorted(groups)) or "none"
            raise InvalidFieldError(path, f"no group of nodes is named {name!r}; there are: {known}")

    def _check_name(self, name: str, path: str) -> None:
        problems = dns_label_problems(name)
        if problems:
            raise InvalidFieldError(path, f"{name!r} is not a valid name: {problems[0]}")

    def _seconds(self, text: str, path: str) -> float:
        try:
            return seconds(text)
        except ValueError as error:
            raise InvalidFieldError(path, f"{error}; write 30s, 5m or 1h30m") from None

    def _positive(self, text: str, path: str) -> float:
        amount = self._seconds(text, path)
        if amount <= 0:
            raise InvalidFieldError(path, "must be greater than 0")
        return amount
