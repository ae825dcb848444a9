"""`Cluster`: a cluster to ask what-if questions about.

    cluster = Cluster.load("cluster.yaml")
    with cluster.branch() as b:
        b.drain("n17")
        print(b.schedule())

All changes are hypothetical: nothing is written to the files or the API server that it was loaded from.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from bayplan.answers.sources.groups import with_groups
from bayplan.answers.sources.loaded import LoadedCluster
from bayplan.answers.sources.loading import SourceOptions, load_cluster
from bayplan.answers.sources.warnings import Warning
from bayplan.answers.whatif.capacity import PodMix, count_capacity
from bayplan.answers.whatif.controllers import without_node
from bayplan.answers.whatif.draining import NO_BUDGETS, drain_warnings
from bayplan.answers.whatif.engine import Clock, Profiles
from bayplan.answers.whatif.machines import like_node, read_node_template
from bayplan.answers.whatif.ordered_sets import without_later_pods
from bayplan.answers.whatif.outcomes import (
    Answer,
    Applied,
    Capacity,
    Outcome,
    Placement,
    Placements,
    cluster_html,
)
from bayplan.answers.whatif.pods import add_daemons, copies_of, create_copies, delete_pod
from bayplan.answers.whatif.scaling import known_manifest, pods_of_workload, to_delete
from bayplan.answers.whatif.scheduling import Scheduling
from bayplan.answers.whatif.state import BranchStore, ColumnHandler, State
from bayplan.answers.whatif.view import ClusterView
from bayplan.api.defaults import with_defaults
from bayplan.api.devices import ResourceClaim
from bayplan.api.meta import Content, Object
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.api.storage import StorageClass
from bayplan.api.workloads import PodDisruptionBudget, PriorityClass, ReplicaSet
from bayplan.config import KubeSchedulerConfiguration, QueueDialect, QueuesConfiguration, default_config
from bayplan.controllers.pods import belongs_to_node, is_recreated
from bayplan.errors import InputError
from bayplan.framework.plugin_api import Plugin
from bayplan.garbage import no_garbage_collection
from bayplan.simulate.memory.store import MemoryCluster
from bayplan.simulate.virtual_time import DEFAULT_EPOCH
from bayplan.state.cluster import Cluster as Columns

if TYPE_CHECKING:
    from bayplan.answers.explain.explanation import Explanation
    from bayplan.answers.whatif.manifests import Manifests

_EXISTS: Final = "there is already a {kind} {key}"
_NOT_ONE: Final = "it must have exactly one pod or workload"
_NOT_OPEN: Final = "this branch was closed"
_INNER: Final = "a branch of this cluster is open: use the branch, or leave its with block"


class Cluster(ClusterView):
    """A cluster, or a branch of one. Create it with `load`, `from_kubeconfig` or `from_objects`."""

    # Making one

    @classmethod
    def load(
        cls,
        *files: str | PathLike[str],
        config: str | PathLike[str] | None = None,
        plugins: Sequence[str] = (),
        seed: int = 0,
    ) -> Cluster:
        """A cluster from files: YAML or JSON of API objects, snapshots, directories.

        Args:
            config: a kube-scheduler configuration file; None: the default configuration.
            plugins: plugins of your own, `module:Class` or `path/to/file.py:Class`.
            seed: of the random numbers, where a configuration or plugin uses some.

        Raises:
            BayplanError: a file is missing or malformed.
        """
        options = SourceOptions(
            tuple(fspath(file) for file in files),
            config_file=None if config is None else fspath(config),
            plugin_specs=tuple(plugins),
        )
        return cls.from_loaded(load_cluster(options), seed=seed)

    @classmethod
    def from_kubeconfig(
        cls,
        kubeconfig: str | PathLike[str] = "",
        *,
        context: str = "",
        config: str | PathLike[str] | None = None,
        plugins: Sequence[str] = (),
        seed: int = 0,
    ) -> Cluster:
        """The live cluster of a kubeconfig, read once; nothing is written to it."""
        options = SourceOptions(
            kubeconfig=fspath(kubeconfig),
            context=context,
            config_file=None if config is None else fspath(config),
            plugin_specs=tuple(plugins),
        )
        return cls.from_loaded(load_cluster(options), seed=seed)

    @classmethod
    def from_loaded(cls, loaded: LoadedCluster, *, seed: int = 0) -> Cluster:
        """A cluster from what `bayplan.answers.sources` loaded. A manifest may add its first pod groups."""
        loaded = with_groups(loaded)
        return cls.from_objects(
            (*loaded.objects, *(loaded.pods or ())),
            config=loaded.config or default_config(release=loaded.release),
            plugins=loaded.plugins,
            listed=loaded.listed,
            warnings=loaded.warnings,
            seed=seed,
        )

    @classmethod
    def from_objects(
        cls,
        objects: Iterable[Object],
        *,
        config: KubeSchedulerConfiguration | None = None,
        plugins: Sequence[type[Plugin]] = (),
        listed: frozenset[str] = frozenset(),
        warnings: Sequence[Warning] = (),
        seed: int = 0,
    ) -> Cluster:
        """A cluster from API objects as an API server stores them (`with_defaults`)."""
        config = default_config() if config is None else config
        objects = tuple(objects)
        columns, clock = Columns(config.release), Clock(_newest(objects))
        store = BranchStore(columns.undo, lambda: clock.now)
        profiles = Profiles(config, plugins, columns, MemoryCluster(store), lambda: clock.now)
        state = State(columns, store, profiles.core().frameworks.keys())
        with no_garbage_collection():
            state.load(objects)
        scheduling = Scheduling(state, profiles, clock, seed=seed, listed=listed, warnings=warnings)
        return cls(scheduling)

    # Questions

    def schedule(self, pods: Iterable[Pod | str] | None = None) -> Placements:
        """Schedules pending pods, and leaves them where they are placed.

        Args:
            pods: pods of this cluster without a node, or their keys; pods that are not part of it yet are
                added. None: all pending pods.
        """
        self._check()
        chosen = self.pending if pods is None else [self._known(pod) for pod in pods]
        left = [pod for pod in chosen if not pod.spec.node_name]
        placed = self._scheduling.schedule(left, self.groups_left_out)
        if self._rollouts:
            from bayplan.answers.whatif.rollouts import play

            ignored = frozenset(pod.uid for pod in self.pending) - {pod.uid for pod in left}
            placed = play(self, placed, ignored)
        if self._created or self._lost:
            placed = without_later_pods(self, placed)
        moved = tuple(dataclasses.replace(one, was_on=self._lost.get(one.pod, one.was_on)) for one in placed)
        dropped = () if pods is not None else self.not_recreated
        return dataclasses.replace(placed, pods=(*moved, *dropped))

    def can_schedule(self, pod: Pod | str) -> Answer:
        """Whether the pod would be scheduled now, where, or why not. Nothing changes."""
        with self.branch() as branch:
            placed = branch.schedule([pod])
            return Answer(placed.pods[0], placed.warnings, placed.failures)

    def explain(self, pod: Pod | str) -> Explanation:
        """Every filter and score for a pending pod, on the cluster as it is."""
        from bayplan.answers.explain.explanation import explain

        with self.branch() as branch:
            known = branch._known(pod)
            framework = self._scheduling.profiles.core().framework_for(known)
            if framework is None:
                raise InputError(f"no profile is named {known.spec.scheduler_name!r}")
            return explain(framework, known)

    def capacity(self, pods: Pod | PodMix, *, at_most: int = 1_000_000) -> Capacity:
        """How many more copies of a pod, or of a mix of pods, fit without evictions.

        Args:
            pods: a pod, or pairs of a pod and its share: `[(web, 3), (worker, 1)]` places three of the first
                for each of the second.
            at_most: where to stop.
        """
        mix = [(pods, 1)] if isinstance(pods, Pod) else list(pods)
        with self.branch() as branch:
            return count_capacity(branch, mix, at_most)

    def models(self, file: str | PathLike[str]) -> list[tuple[Pod, int]]:
        """The pods of a manifest with one pod or workload, for `capacity`. What else is in it is applied.

        It is one pod with the share 1, but for a job with several tasks, of which each gang has some pods.

        Raises:
            InputError: as `apply`; or there is not exactly one.
        """
        from bayplan.answers.whatif.applying import models_of
        from bayplan.answers.whatif.manifests import read_manifests

        self._check()
        read = read_manifests(fspath(file), self.columns.release)
        models = models_of(self, read)
        self.left_out = (*self.left_out, *read.left_out)
        if len(models) != 1:
            raise InputError(_NOT_ONE, source=fspath(file))
        return models[0]

    def model(self, file: str | PathLike[str]) -> Pod:
        """The first pod of `models`."""
        return self.models(file)[0][0]

    # Changes

    def add(self, *items: Object, replicas: int = 1) -> list[Pod]:
        """Adds objects, as if they were created now. Returns the pods among them.

        Args:
            replicas: how many of each pod; more than one get a number as suffix.

        Raises:
            InputError: an object with the name exists, or a pod names a priority class that does not.
        """
        self._check()
        classes: list[Object] = [*self._store.all(PriorityClass), *self._store.all(StorageClass)]
        fresh = [copy for item in items for copy in copies_of(item, replicas)]
        made = []
        for item in with_defaults((*classes, *fresh))[len(classes) :]:
            if self._store.find(type(item), item.name, item.namespace) is not None:
                raise InputError(_EXISTS.format(kind=type(item).__name__, key=item.key))
            created = self._store.create(item)
            if isinstance(created, Pod):
                made.append(created)
        self._state.deliver()
        return [self._store.get(Pod, pod.name, pod.namespace) for pod in made]

    def apply(
        self, *manifests: str | PathLike[str] | Content | Manifests, replicas: int | None = None
    ) -> list[Applied]:
        """Applies manifests: files, objects as JSON or YAML decodes them, or what `read_manifests` has read.
        Returns what became of each.

        An object that exists is changed: a workload is scaled, and if its pod template is another one, it is
        rolled out as soon as `schedule` is called. Kinds that are not known are left out (`left_out`).

        Args:
            replicas: how many pods of each pod or workload; None: as many as they state.

        Raises:
            InputError: a file is missing or malformed, or an API server would reject an object.
        """
        from bayplan.answers.whatif.applying import apply_manifests
        from bayplan.answers.whatif.manifests import Manifests, manifests_of, read_manifests

        self._check()
        release, done = self.columns.release, []
        for one in manifests:
            if isinstance(one, Manifests):
                read = one
            elif isinstance(one, dict):
                read = manifests_of(one, release=release)
            else:
                read = read_manifests(fspath(one), release)
            done += apply_manifests(self, read, replicas)
            self.left_out = tuple(dict.fromkeys((*self.left_out, *read.left_out)))
        return done

    def add_nodes(self, count: int, like: str | Node) -> list[str]:
        """Adds nodes, with pods of DaemonSets only, which are pending. Returns their names.

        Args:
            like: a node of this cluster, a Node object or a file with one, or a machine shape
                (`cpu=8,memory=32Gi`).
        """
        self._check()
        template = like if isinstance(like, Node) else read_node_template(like, self)
        made = list(like_node(template, count, {one.name for one in self._store.all(Node)}))
        for node in made:
            self._store.create(node)
        self._state.deliver()
        add_daemons(self, made, template.name)
        return [node.name for node in made]

    def remove_node(self, name: str) -> list[Pod]:
        """Removes a node and its pods. Returns those that controllers create again: they are pending."""
        self._check()
        self.node(name)
        displaced = self._displace(name, self.pods_of(name))
        self._store.delete(Node, name)
        self._state.deliver()
        return displaced

    def drain(self, name: str) -> list[Pod]:
        """Cordons a node and evicts its pods, except those of DaemonSets and static pods.

        Returns the pods that controllers create again: they are pending. Pods that are terminating already
        stay: their controllers have replaced them, or will when they have ended.
        """
        self.cordon(name)
        evicted = [pod for pod in self.pods_of(name) if not (pod.is_terminating or belongs_to_node(pod))]
        for warning in self._scheduling.missing_kind("PodDisruptionBudget", NO_BUDGETS) if evicted else ():
            self._drain_warnings["", ""] = warning
        self._drain_warnings |= drain_warnings(name, evicted, self._store.all(PodDisruptionBudget))
        return self._displace(name, evicted)

    def cordon(self, name: str) -> None:
        """Marks a node as unschedulable."""
        self._set_unschedulable(name, True)

    def uncordon(self, name: str) -> None:
        self._set_unschedulable(name, False)

    def _set_unschedulable(self, name: str, unschedulable: bool) -> None:
        self._check()
        node = self.node(name)
        self._store.update(replace(node, spec=replace(node.spec, unschedulable=unschedulable)))
        self._state.deliver()

    def put(self, item: Object) -> None:
        """Adds an object as it is, without defaults, or replaces the one with its name."""
        self._check()
        known = self._store.find(type(item), item.name, item.namespace)
        if known is None:
            self._store.create(item)
        else:
            meta = replace(item.metadata, uid=known.uid, resource_version="")
            self._store.update(replace(item, metadata=meta))
            if isinstance(item, ResourceClaim):
                self._store.update_claim_status(replace(item, metadata=meta))
        self._state.deliver()

    def sync(self, old: Object | None, new: Object | None) -> None:
        """An object of the live cluster that this is a copy of was added, changed or deleted."""
        self._check()
        self._state.sync(old, new)

    def delete(self, item: Object | str) -> None:
        """Deletes an object, or the pod with this key; a pod is not created again."""
        self._check()
        found = self.pod(item) if isinstance(item, str) else item
        self._store.delete(type(found), found.name, found.namespace)
        self._state.deliver()

    def _displace(self, node: str, pods: Sequence[Pod]) -> list[Pod]:
        """Deletes pods, and creates those again that have a controller."""
        again = []
        for pod in pods:
            self._store.delete(Pod, pod.name, pod.namespace)
            self._state.deliver()
            if pod.is_terminating:
                continue  # See `drain`.
            if is_recreated(pod):
                again.append(self._store.create(without_node(pod, self._store)))
                self._lost[pod.key] = node
            elif not belongs_to_node(pod):
                reason = "it has no controller that would create it again"
                self._dropped[pod.key] = Placement(pod.key, Outcome.NOT_RECREATED, "", node, reason)
            self._state.deliver()
        return [self._store.get(Pod, pod.name, pod.namespace) for pod in again]

    def evict(self, pod: Pod | str) -> Pod | None:
        """Evicts a pod. Returns the pod that its controller creates again, which is pending, if it does."""
        self._check()
        found = self._known(pod)
        again = self._displace(found.spec.node_name, [found])
        return again[0] if again else None

    def scale(self, workload: str, replicas: int) -> list[Pod]:
        """Scales a Deployment, ReplicaSet, StatefulSet or Job (`namespace/name`). Returns new pods.

        New pods are copies of those that are there. A Deployment or StatefulSet without pods gets them from
        its template. Those that a quota does not allow are in the result of `schedule`.

        Raises:
            InputError: it has no pods, and its template is not known.
        """
        self._check()
        namespace, _, name = workload.rpartition("/")
        namespace = namespace or "default"
        there = pods_of_workload(namespace, name, self.pods, self._store.all(ReplicaSet))
        if len(there) > replicas:
            for pod in to_delete(there, len(there) - replicas):
                delete_pod(self, pod)
            return []
        known = {pod.uid for pod in self.pending}
        if there:
            create_copies(self, there, replicas - len(there))
        else:
            self.apply(known_manifest(self._store, namespace, name), replicas=replicas)
        return [pod for pod in self.pending if pod.uid not in known]

    @property
    def has_volcano_queues(self) -> bool:
        """Whether the configuration reads the Queues of Volcano."""
        queues = self._scheduling.profiles.config.bayplan.queues
        return queues is not None and queues.dialect is QueueDialect.VOLCANO

    def use_queues(self, file: str) -> None:
        """Schedules with the capacity queues of this file of the dialect from now on."""
        profiles = self._scheduling.profiles
        queues = (profiles.config.bayplan.queues or QueuesConfiguration()).with_file(file)
        settings = replace(profiles.config.bayplan, queues=queues)
        self.use_config(replace(profiles.config, bayplan=settings), profiles.given_plugins)

    def use_config(self, config: KubeSchedulerConfiguration, plugins: Sequence[type[Plugin]] = ()) -> None:
        """Schedules with another configuration from now on. The release stays."""
        self._check()
        scheduling, state = self._scheduling, self._state
        profiles, direct = scheduling.profiles, state.direct

        def revert() -> None:
            scheduling.profiles, state.direct = profiles, direct

        if state.columns.undo.active:
            state.columns.undo.record(revert)
        scheduling.profiles = profiles.with_config(config, plugins)
        state.direct = ColumnHandler(state.columns, scheduling.profiles.core().frameworks.keys())

    # Branches

    def branch(self) -> Branch:
        """A branch: its changes are reverted at the end of the with block, unless it is committed."""
        self._check()
        self._child = made = Branch(self._scheduling, self)
        return made

    def _check(self) -> None:
        if not self._is_open:
            raise InputError(_NOT_OPEN)
        if self._child is not None:
            raise InputError(_INNER)

    def _known(self, pod: Pod | str) -> Pod:
        """The pod of this cluster, added to it if it is new."""
        if isinstance(pod, str):
            return self.pod(pod)
        found = self._store.find(Pod, pod.name, pod.namespace or "default")
        if found is not None and (not pod.uid or found.uid == pod.uid):
            return found
        return self.add(pod)[0]

    def __repr__(self) -> str:
        pods = self._state.columns.pod_count
        kind = "branch" if self._parent is not None else "cluster"
        return f"<{kind} of {len(self.nodes)} nodes, {pods} assigned pods, {len(self.pending)} pending>"

    def _repr_html_(self) -> str:
        return cluster_html(self)


def _newest(objects: Iterable[Object]) -> float:
    """When the newest pod was created: what-if runs begin then, so that pods are as old as they are."""
    stamps = (item.metadata.creation_timestamp for item in objects if isinstance(item, Pod))
    return max((stamp.timestamp() for stamp in stamps if stamp is not None), default=DEFAULT_EPOCH)


class Branch(Cluster):
    """A cluster whose changes can be reverted. It costs what is changed in it, not a copy."""

    def __init__(self, scheduling: Scheduling, parent: Cluster) -> None:
        super().__init__(scheduling, parent)
        self._lost, self._dropped = dict(parent._lost), dict(parent._dropped)
        self._created = set(parent._created)
        self._drain_warnings = dict(parent._drain_warnings)
        self._rollouts, self.left_out = parent._rollouts, parent.left_out
        self._store.mark()
        start = scheduling.profiles.core().search_start
        index, undo = start.index, scheduling.state.columns.undo
        undo.record(lambda: setattr(start, "index", index))

    def commit(self) -> None:
        """Makes the changes part of the cluster that was branched. The branch is closed."""
        self._close()
        assert self._parent is not None
        self._parent._lost, self._parent._dropped = self._lost, self._dropped
        self._parent._created = self._created
        self._parent._drain_warnings = self._drain_warnings
        self._parent._rollouts, self._parent.left_out = self._rollouts, self.left_out
        self._state.columns.undo.keep()

    def revert(self) -> None:
        """Reverts all changes. The branch is closed."""
        self._close()
        self._state.columns.undo.revert()

    def _close(self) -> None:
        self._check()
        self._is_open = False
        assert self._parent is not None
        self._parent._child = None

    def __enter__(self) -> Branch:
        return self

    def __exit__(self, *error: object) -> None:
        if self._is_open:
            if self._child is not None and self._child._is_open:
                assert isinstance(self._child, Branch)
                self._child.__exit__(*error)
            self.revert()
