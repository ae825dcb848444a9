"""Workloads of Kubernetes' benchmark scheduler_perf (`performance-config.yaml` and its templates).

A test case is a list of operations, a workload gives their parameters. What only concerns measuring is
ignored; an operation that would change what is scheduled, and is not supported, is an error. `read_benchmark`
reads the operations, `BenchmarkRun` performs them one after the other.

https://github.com/kubernetes/kubernetes/tree/master/test/integration/scheduler_perf
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from bayplan.api.decode import parse_objects
from bayplan.api.defaults import NAMESPACE_NAME_LABEL, with_defaults
from bayplan.api.documents import read_documents, read_file
from bayplan.api.meta import Condition, Object, ObjectMeta, ResourceList
from bayplan.api.node import Namespace, Node, NodeStatus
from bayplan.api.pod import Container, Pod, PodSpec, ResourceRequirements
from bayplan.api.reading import problem_and_field
from bayplan.errors import ConflictError, DecodeError, InputError
from bayplan.framework.args import Duration
from bayplan.simulate.scenarios.inputs import HOSTNAME, drawing, generator
from bayplan.simulate.scenarios.pods import Owner, SimulatedPod
from bayplan.simulate.scenarios.schema import SchedulerPerf
from bayplan.simulate.scenarios.world import World

MAX_COUNT: Final = 1_000_000
_IGNORED: Final = frozenset({"startCollectingMetrics", "stopCollectingMetrics"})
_AMOUNTS: Final[ResourceList] = {"cpu": "4", "memory": "32Gi", "pods": "110"}
_NODE: Final = Node(
    status=NodeStatus(
        allocatable=_AMOUNTS, capacity=_AMOUNTS, conditions=(Condition(type="Ready", status="True"),)
    )
)
_POD: Final = Pod(
    metadata=ObjectMeta(generate_name="pod-"),
    spec=PodSpec(
        containers=(
            Container(
                name="pause", resources=ResourceRequirements(requests={"cpu": "100m", "memory": "500Mi"})
            ),
        )
    ),
)
"""What scheduler_perf creates without a template."""
_INDEX: Final = "{{.Index}}"


@dataclass(frozen=True, slots=True)
class CreateObjects:
    """Nodes, namespaces or other objects."""

    objects: tuple[Object, ...]


@dataclass(frozen=True, slots=True)
class CreatePods:
    name: str
    """The prefix of the pods' names."""
    template: Pod
    namespaces: tuple[str, ...]
    count: int
    """In each of the namespaces."""
    waits: bool
    """Whether the next operation begins only when all of them are scheduled."""


@dataclass(frozen=True, slots=True)
class Churn:
    """Creates a pod of each template again and again, until the end or `number` times."""

    name: str
    templates: tuple[Pod, ...]
    namespace: str
    seconds: float
    number: int


@dataclass(frozen=True, slots=True)
class Sleep:
    seconds: float


@dataclass(frozen=True, slots=True)
class Barrier:
    """Waits until all pods are scheduled."""


Operation = CreateObjects | CreatePods | Churn | Sleep | Barrier


@dataclass(frozen=True, slots=True)
class Benchmark:
    name: str
    operations: tuple[Operation, ...]

    @property
    def templates(self) -> Iterator[Pod]:
        for operation in self.operations:
            if isinstance(operation, CreatePods):
                yield operation.template
            elif isinstance(operation, Churn):
                yield from operation.templates


class _Workload(msgspec.Struct, rename="camel"):
    name: str
    params: dict[str, Any] = {}


class _TestCase(msgspec.Struct, rename="camel"):
    name: str
    workload_template: list[dict[str, Any]] = []
    workloads: list[_Workload] = []
    default_pod_template_path: str | None = None


class _OperationError(Exception):
    """An operation cannot be read."""


def read_benchmark(path: Path, test_case: str, workload: str) -> Benchmark:
    """The operations of one workload of a test case.

    Raises:
        InputError: a file is missing or malformed, there is no such workload, or it has operations that are
            not supported.
    """
    cases = _cases(path)
    case = next((case for case in cases if case.name == test_case), None)
    if case is None:
        known = ", ".join(case.name for case in cases)
        raise DecodeError(f"there is no test case {test_case!r}; there are: {known}", source=str(path))
    chosen = next((one for one in case.workloads if one.name == workload), None)
    if chosen is None:
        known = ", ".join(one.name for one in case.workloads)
        raise DecodeError(f"{test_case} has no workload {workload!r}; there are: {known}", source=str(path))
    reader = _Reader(path, case, chosen.params)
    operations: list[Operation] = []
    for number, raw in enumerate(case.workload_template):
        try:
            operations.extend(reader.read(number, raw))
        except _OperationError as error:
            where = f"{test_case}: workloadTemplate[{number}]"
            raise DecodeError(str(error), source=str(path), field=where) from None
    return Benchmark(test_case, tuple(operations))


def _cases(path: Path) -> list[_TestCase]:
    documents = list(read_documents(path))
    content = documents[0].content if len(documents) == 1 else None
    try:
        return msgspec.convert(content, list[_TestCase])
    except msgspec.ValidationError as error:
        problem, field = problem_and_field(error)
        raise DecodeError(
            f"this is not a scheduler_perf file: {problem}", source=str(path), field=field
        ) from None


class _Reader:
    """Reads the operations of one workload."""

    def __init__(self, path: Path, case: _TestCase, params: Mapping[str, Any]) -> None:
        self._path = path
        self._case = case
        self._params = params
        self._nodes = 0

    def read(self, number: int, raw: Mapping[str, Any]) -> Iterator[Operation]:
        opcode = raw.get("opcode")
        match opcode:
            case "createNodes":
                yield CreateObjects(tuple(self._make_nodes(raw)))
            case "createNamespaces":
                yield CreateObjects(tuple(self._make_namespaces(raw)))
            case "createPods":
                namespace = raw.get("namespace")
                if namespace is None:
                    namespace = f"namespace-{number}"
                    yield CreateObjects((_namespace(namespace),))
                yield self._create_pods(number, raw, (str(namespace),))
            case "createPodSets":
                prefix = raw.get("namespacePrefix", "")
                names = tuple(f"{prefix}-{index}" for index in range(self._count(raw)))
                yield self._create_pods(number, raw.get("createPodsOp") or {}, names)
            case "createAny":
                yield CreateObjects(tuple(self._make_any(raw)))
            case "churn":
                yield CreateObjects((_namespace(f"churn-{number}"),))
                yield self._churn(number, raw)
            case "sleep":
                yield Sleep(self._duration(raw))
            case "barrier":
                yield Barrier()
            case _ if opcode not in _IGNORED:
                raise _OperationError(f"opcode {opcode!r} is not supported")

    # Values

    def _value(self, raw: Mapping[str, Any], name: str, default: object = None) -> Any:
        """A field, or the parameter that `<name>Param` names."""
        param = raw.get(f"{name}Param")
        if param is None:
            return raw.get(name, default)
        key = str(param).removeprefix("$")
        if key not in self._params:
            raise _OperationError(f"{name}Param: the workload has no parameter {key!r}")
        return self._params[key]

    def _count(self, raw: Mapping[str, Any], default: int | None = None) -> int:
        count = self._value(raw, "count", default)
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= MAX_COUNT:
            raise _OperationError(f"count: {count!r} is not a number from 0 to {MAX_COUNT}")
        return count

    def _duration(self, raw: Mapping[str, Any]) -> float:
        try:
            return max(Duration.parse(str(self._value(raw, "duration"))).seconds, 0.0)
        except ValueError as error:
            raise _OperationError(f"duration: {error}") from None

    # Objects

    def _template(self, file: object, kind: type[Object], index: int = 0) -> Object:
        """The one object of a template."""
        found = [item for item in self._objects(file, index) if isinstance(item, kind)]
        if len(found) != 1:
            raise _OperationError(f"{file}: expected one {kind.__name__}")
        return found[0]

    def _objects(self, file: object, index: int) -> list[Object]:
        path = self._path.parent / str(file)
        try:
            text = read_file(path).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise _OperationError(f"{file}: {getattr(error, 'strerror', None) or error}") from None
        text = text.replace(_INDEX, str(index))
        if "{{" in text:
            raise _OperationError(f"{file}: templates with other fields than {_INDEX} are not supported")
        try:
            return with_defaults(parse_objects(text.encode(), str(path)))
        except InputError as error:
            raise _OperationError(f"{file}: {error}") from None

    def _make_nodes(self, raw: Mapping[str, Any]) -> Iterator[Node]:
        file = raw.get("nodeTemplatePath")
        template = _NODE if file is None else self._template(file, Node)
        assert isinstance(template, Node)
        labelled = raw.get("labelNodePrepareStrategy") or {}
        unique = (raw.get("uniqueNodeLabelStrategy") or {}).get("labelKey", HOSTNAME)
        values: Sequence[str] = labelled.get("labelValues") or ()
        for index in range(self._count(raw)):
            name = f"scheduler-perf-{self._nodes}"
            self._nodes += 1
            labels = {**template.labels, unique: name}
            if values:
                labels[str(labelled.get("labelKey"))] = str(values[index % len(values)])
            yield replace(template, metadata=ObjectMeta(name=name, labels=labels))

    def _make_namespaces(self, raw: Mapping[str, Any]) -> Iterator[Namespace]:
        file = raw.get("namespaceTemplatePath")
        labels = {} if file is None else self._template(file, Namespace).labels
        for index in range(self._count(raw)):
            yield _namespace(f"{raw.get('prefix', '')}-{index}", labels)

    def _make_any(self, raw: Mapping[str, Any]) -> Iterator[Object]:
        for index in range(self._count(raw, 1)):
            for item in self._objects(raw.get("templatePath"), index):
                namespace = raw.get("namespace")
                meta = item.metadata
                yield (
                    item if namespace is None else replace(item, metadata=replace(meta, namespace=namespace))
                )

    def _pod(self, file: object) -> Pod:
        if file is None:
            (pod,) = with_defaults([_POD])
        else:
            pod = self._template(file, Pod)
        assert isinstance(pod, Pod)
        return pod

    def _create_pods(self, number: int, raw: Mapping[str, Any], namespaces: tuple[str, ...]) -> CreatePods:
        if raw.get("persistentVolumeTemplatePath") or raw.get("persistentVolumeClaimTemplatePath"):
            raise _OperationError("pods with persistent volumes are not supported")
        template = self._pod(raw.get("podTemplatePath") or self._case.default_pod_template_path)
        waits = not raw.get("skipWaitToCompletion")
        return CreatePods(f"pod-{number}", template, namespaces, self._count(raw), waits)

    def _churn(self, number: int, raw: Mapping[str, Any]) -> Churn:
        if raw.get("mode") != "create":
            raise _OperationError(f"churn: mode {raw.get('mode')!r} is not supported, only create")
        interval = self._value(raw, "intervalMilliseconds", 500)
        if not isinstance(interval, int) or interval < 1:
            raise _OperationError(f"intervalMilliseconds: {interval!r} is not a positive number")
        templates = tuple(self._pod(file) for file in raw.get("templatePaths") or ())
        times = self._value(raw, "number", 0)
        return Churn(f"churn-{number}", templates, f"churn-{number}", interval / 1000, int(times))


def _namespace(name: str, labels: Mapping[str, str] | None = None) -> Namespace:
    return Namespace(metadata=ObjectMeta(name=name, labels={**(labels or {}), NAMESPACE_NAME_LABEL: name}))


class Unscheduled(Owner):
    """Counts pods until all of them are scheduled, or gone."""

    def __init__(self) -> None:
        self._pods: set[str] = set()
        self._none = asyncio.Event()
        self._none.set()

    def add(self, pod: SimulatedPod) -> None:
        self._pods.add(pod.uid)
        self._none.clear()

    def scheduled(self, pod: SimulatedPod) -> None:
        self._pods.discard(pod.uid)
        if not self._pods:
            self._none.set()

    def lost(self, pod: SimulatedPod) -> None:
        self.scheduled(pod)

    async def all_scheduled(self) -> None:
        await self._none.wait()


class BenchmarkRun:
    """A workload of scheduler_perf in a simulation."""

    def __init__(self, world: World, benchmark: Benchmark, wanted: SchedulerPerf, seed: int) -> None:
        self._world = world
        self._benchmark = benchmark
        self._draw = None if wanted.run_time is None else drawing(wanted.run_time)
        self._rng = generator(seed, "schedulerPerf", "runTime")
        self._all = Unscheduled()
        self._churning: list[asyncio.Future[None]] = []
        self.operations = benchmark.operations
        self.done = 0
        """The number of operations that are over."""

    async def run(self) -> None:
        try:
            for operation in self.operations:
                match operation:
                    case CreateObjects():
                        self._create(operation)
                    case CreatePods():
                        await self._create_pods(operation)
                    case Churn():
                        self._churning.append(asyncio.ensure_future(self._churn(operation)))
                    case Sleep():
                        await asyncio.sleep(operation.seconds)
                    case Barrier():
                        await self._all.all_scheduled()
                self.done += 1
            if self._churning:
                await asyncio.wait(self._churning)
        finally:
            for churning in self._churning:
                churning.cancel()
            await asyncio.gather(*self._churning, return_exceptions=True)

    def _create(self, operation: CreateObjects) -> None:
        for item in operation.objects:
            if isinstance(item, Node):
                self._world.add_node(item, "")
            else:
                # As upstream, an object that exists already is used.
                with suppress(ConflictError):
                    self._world.store.create(item)

    async def _create_pods(self, operation: CreatePods) -> None:
        batch = Unscheduled()
        for namespace in operation.namespaces:
            template = _in_namespace(operation.template, namespace)
            for index in range(operation.count):
                # A pod that nothing waits for counts for barriers only.
                self._create_pod(template, operation.name, index, batch if operation.waits else self._all)
        await batch.all_scheduled()

    async def _churn(self, operation: Churn) -> None:
        templates = [_in_namespace(template, operation.namespace) for template in operation.templates]
        rounds = range(operation.number) if operation.number else itertools.count()
        for index in rounds:
            for place, template in enumerate(templates):
                self._create_pod(template, f"{operation.name}-{place}", index, Unscheduled())
            await asyncio.sleep(operation.seconds)

    def _create_pod(self, template: Pod, name: str, index: int, owner: Unscheduled) -> None:
        pod = self._world.create_pod(
            template,
            f"{name}-{index}",
            workload=f"{self._benchmark.name}: {name}",
            owner=owner,
            run_seconds=None if self._draw is None else self._draw(self._rng),
        )
        owner.add(pod)


def _in_namespace(template: Pod, namespace: str) -> Pod:
    return replace(template, metadata=replace(template.metadata, namespace=namespace))
