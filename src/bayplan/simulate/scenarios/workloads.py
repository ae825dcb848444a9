"""Lets the workloads of a scenario arrive, and its other events happen, at their times.

`inputs.py` says when that is, `pods.py` has what arrives, `world.py` what happens to it then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bayplan.simulate.scenarios import schema
from bayplan.simulate.scenarios.inputs import TraceRow, arrival_times, drawing, generator, make_node, seconds
from bayplan.simulate.scenarios.pods import Deployment, Gang, Job, PodGroup, TraceTemplates
from bayplan.simulate.scenarios.reading import LoadedScenario
from bayplan.simulate.scenarios.schema import ALL_NODES, ChangeNodes, Event, Failure, NodeGroup, Workload
from bayplan.simulate.scenarios.world import SimulatedNode, World


class Arriving:
    """One workload. Only its next arrival has a timer, however many there are."""

    def __init__(self, world: World, workload: Workload, loaded: LoadedScenario, seed: int, until: float):
        self.deployments: list[Deployment] = []
        self._world = world
        self._workload = workload
        self._template = loaded.templates[workload.name]
        self._run_rng = generator(seed, workload.name, "runTime")
        self._draw = None if workload.run_time is None else drawing(workload.run_time)
        self._number = 0
        rows = loaded.traces.get(workload.name)
        times = (
            arrival_times(workload.arrivals, generator(seed, workload.name, "arrivals"), until)
            if rows is None
            else iter(())
        )
        create: Callable[[], None] = {
            schema.POD: self._create_pod,
            schema.JOB: self._create_job,
            schema.GANG: self._create_gang,
            schema.POD_GROUP: self._create_gang,
            schema.DEPLOYMENT: self._create_deployment,
        }[workload.kind]
        self._schedule(times, create)
        if rows is not None:
            self._templates = TraceTemplates(self._template)
            self._schedule_row(self._of_trace(rows, until))

    def _schedule(self, times: Iterator[float], create: Callable[[], None]) -> None:
        time = next(times, None)
        if time is not None:
            self._world.loop.call_at(time, self._arrive, times, create)

    def _arrive(self, times: Iterator[float], create: Callable[[], None]) -> None:
        create()
        self._number += 1
        self._schedule(times, create)

    def _run_seconds(self) -> float | None:
        return None if self._draw is None else self._draw(self._run_rng)

    @property
    def _name(self) -> str:
        return f"{self._workload.name}-{self._number}"

    def _create_pod(self) -> None:
        self._world.create_pod(
            self._template, self._name, workload=self._workload.name, run_seconds=self._run_seconds()
        )

    def _create_job(self) -> None:
        workload = self._workload
        completions = workload.completions or 1
        Job(
            self._world,
            workload.name,
            self._name,
            self._template,
            completions=completions,
            parallelism=workload.parallelism or 1,
            run_seconds=[self._run_seconds() for _ in range(completions)],
        )

    def _create_gang(self) -> None:
        workload = self._workload
        size = workload.size or 1
        made = PodGroup if workload.kind == schema.POD_GROUP else Gang
        made(
            self._world,
            workload.name,
            self._name,
            self._template,
            size=size,
            min_member=workload.min_member or size,
            run_seconds=self._run_seconds(),
        )

    def _create_deployment(self) -> None:
        workload = self._workload
        replicas = 1 if workload.replicas is None else workload.replicas
        made = Deployment(self._world, workload.name, self._name, self._template, replicas=replicas)
        self.deployments.append(made)
        lifetime = self._run_seconds()
        if lifetime is not None:
            self._world.loop.call_later(lifetime, self._end, made)

    def _end(self, deployment: Deployment) -> None:
        self.deployments.remove(deployment)
        deployment.end()

    # Traces

    def _of_trace(self, rows: tuple[TraceRow, ...], until: float) -> Iterator[TraceRow]:
        arrivals = self._workload.arrivals
        start = seconds(arrivals.start)
        end = until if arrivals.end is None else min(seconds(arrivals.end), until)
        for number, row in enumerate(rows):
            if start + row.arrival >= end or (arrivals.count is not None and number >= arrivals.count):
                return
            yield row

    def _schedule_row(self, rows: Iterator[TraceRow]) -> None:
        row = next(rows, None)
        if row is not None:
            start = seconds(self._workload.arrivals.start)
            self._world.loop.call_at(start + row.arrival, self._row_arrives, row, rows)

    def _row_arrives(self, row: TraceRow, rows: Iterator[TraceRow]) -> None:
        template = self._templates.of(row)
        for _ in range(row.count):
            self._world.create_pod(
                template, self._name, workload=self._workload.name, run_seconds=row.run_seconds
            )
            self._number += 1
        self._schedule_row(rows)


class NodeChanges:
    """The nodes of a scenario: the initial ones, those that are added and removed, and failures."""

    def __init__(self, world: World, loaded: LoadedScenario, seed: int, until: float) -> None:
        self._world = world
        self._seed = seed
        self._until = until
        self._groups = {group.name: group for group in loaded.scenario.cluster.nodes}
        self._next: dict[str, int] = dict.fromkeys(self._groups, 0)
        self._failures = [
            (failure, seconds(failure.mean_time_between), drawing(failure.repair_time))
            for failure in loaded.scenario.failures
        ]
        for group in self._groups.values():
            self.add(group, group.count)

    def watch_initial(self) -> None:
        """Nodes from files can fail, too."""
        for node in list(self._world.nodes.values()):
            if not node.group:
                self._expect_failures(node)

    def add(self, group: NodeGroup, count: int) -> None:
        for _ in range(count):
            number = self._next[group.name]
            self._next[group.name] += 1
            self._expect_failures(self._world.add_node(make_node(group, number), group.name))

    def _expect_failures(self, node: SimulatedNode) -> None:
        for number, (failure, _, _) in enumerate(self._failures):
            if failure.nodes in (ALL_NODES, node.group):
                self._expect(node, number)

    def _expect(self, node: SimulatedNode, number: int) -> None:
        failure, mean, _ = self._failures[number]
        # One generator for each failure of each node: the number of other nodes does not matter.
        rng = generator(self._seed, "failures", str(number), node.name, str(node.failures))
        when = self._world.loop.time() + rng.expovariate(1 / mean)
        if when < self._until:
            self._world.loop.call_at(when, self._fail, node, number, failure)

    def _fail(self, node: SimulatedNode, number: int, failure: Failure) -> None:
        if self._world.nodes.get(node.name) is not node:
            return
        rng = generator(self._seed, "repairs", str(number), node.name, str(node.failures))
        repair = self._failures[number][2](rng)
        self._world.fail_node(node.name, repair)
        self._world.loop.call_later(repair, self._expect, node, number)

    def chosen(self, change: ChangeNodes) -> list[str]:
        """The nodes that a change concerns, as far as they exist."""
        if change.names:
            return [name for name in change.names if name in self._world.nodes]
        ours = [node.name for node in self._world.nodes.values() if node.group == change.group]
        return list(reversed(ours))[: change.count]

    def apply(self, event: Event) -> None:
        """An event of the scenario that changes nodes."""
        if event.add_nodes is not None:
            group, count = event.add_nodes.group, event.add_nodes.count
            assert group is not None, "checked when the scenario was read"
            assert count is not None, "checked when the scenario was read"
            self.add(self._groups[group], count)
        if event.remove_nodes is not None:
            for name in self.chosen(event.remove_nodes):
                self._world.remove_node(name)
        if event.fail_nodes is not None:
            for name in self.chosen(event.fail_nodes):
                self._world.fail_node(name, seconds(event.fail_nodes.duration))


def schedule_events(
    world: World, loaded: LoadedScenario, nodes: NodeChanges, arriving: list[Arriving]
) -> None:
    """Sets the timers of the scenario's events."""
    by_name = {workload.name: one for workload, one in zip(loaded.scenario.workloads, arriving, strict=True)}

    def happen(event: Event) -> None:
        nodes.apply(event)
        if event.scale is not None:
            for deployment in by_name[event.scale.workload].deployments:
                deployment.scale(event.scale.replicas)

    for event in loaded.scenario.events:
        world.loop.call_at(seconds(event.at), happen, event)
