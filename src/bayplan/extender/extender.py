"""One extender: its verbs, the requests to it, and the meaning of its answers.

The error texts are upstream's. How several extenders work together is in `chain.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from bayplan.api.pod import Pod
from bayplan.config.model import Extender as ExtenderSettings
from bayplan.extender import wire
from bayplan.extender.client import ExtenderError, Transport
from bayplan.extender.wire import ClusterView, MalformedResponseError, NodeJSON, encoded_object
from bayplan.framework.args import quoted
from bayplan.framework.outcome import Eviction
from bayplan.net.http_logs import shown_url

MALFORMED: Final = "failed {verb} with extender at URL {url}: {problem}"
NEVER_SENT: Final = "extender {url} claims a filtered node {node} which is not found in the input node list"
NO_SUCH_NODE: Final = "nodeinfo not found for node name {node}"
NO_SUCH_VICTIM: Final = (
    "extender: {url} claims to preempt pod (UID: &{{{uid}}}) on node: {node}, "
    "but the pod is not found on that node"
)

ResponseT = TypeVar("ResponseT")


@dataclass(frozen=True, slots=True)
class FilterResult:
    """The nodes that an extender accepts, in its order, and the statuses of the others."""

    feasible: tuple[str, ...]
    failed: dict[str, str] = field(default_factory=dict)
    failed_and_unresolvable: dict[str, str] = field(default_factory=dict)


class Extender:
    """A webhook that takes part in scheduling."""

    def __init__(
        self, settings: ExtenderSettings, transport: Transport, view: ClusterView, node_json: NodeJSON
    ) -> None:
        self.url: Final = shown_url(settings.url_prefix)
        """Its name in messages: urlPrefix as configured, without a password."""
        self.ignorable: Final = settings.ignorable
        """Whether pods are scheduled without it if it fails."""
        self.weight: Final = settings.weight
        self.is_filter: Final = bool(settings.filter_verb)
        self.is_prioritizer: Final = bool(settings.prioritize_verb)
        self.supports_preemption: Final = bool(settings.preempt_verb)
        self.is_binder: Final = bool(settings.bind_verb)
        self._settings = settings
        self._managed = frozenset(resource.name for resource in settings.managed_resources)
        self._transport = transport
        self._view = view
        self._node_json = node_json

    def is_interested(self, pod: Pod) -> bool:
        """Whether it is interested in this pod: always, or if a container requests one of its resources."""
        if not self._managed:
            return True
        return any(
            not self._managed.isdisjoint(container.resources.requests)
            or not self._managed.isdisjoint(container.resources.limits)
            for containers in (pod.spec.containers, pod.spec.init_containers)
            for container in containers
        )

    async def filter(self, pod: Pod, names: Sequence[str]) -> FilterResult:
        """The nodes that the pod may go to; all of them if it has no filter verb.

        Of an answer with whole Nodes only the names are used: nodes are scored as the cluster knows them,
        with their pods. A node that was not sent is an error.

        Raises:
            ExtenderError: it did not answer, answered with an error, or named a node that was not sent.
        """
        if not self.is_filter:
            return FilterResult(tuple(names))
        body = self._args(pod, names)
        result = await self._call(self._settings.filter_verb, body, wire.ExtenderFilterResult.decode)
        if result.error:
            raise self._error(result.error)
        passed = result.nodes
        if self._settings.node_cache_capable and result.node_names is not None:
            passed = result.node_names
        # Duplicates are removed: a node named twice is not two nodes.
        feasible = tuple(dict.fromkeys(passed or ()))
        sent = set(names)
        for name in feasible:
            if name not in sent:
                raise self._error(NEVER_SENT.format(url=quoted(self.url), node=quoted(name)))
        return FilterResult(feasible, result.failed_nodes, result.failed_and_unresolvable_nodes)

    async def prioritize(self, pod: Pod, names: Sequence[str]) -> dict[str, int]:
        """Scores by node, without the extender's weight; 0 for all if it has no prioritize verb.

        Raises:
            ExtenderError: it did not answer.
        """
        if not self.is_prioritizer:
            return dict.fromkeys(names, 0)
        body = self._args(pod, names)
        result = await self._call(self._settings.prioritize_verb, body, wire.HostPriorityList.decode)
        scores: dict[str, int] = {}
        for entry in result.entries:
            scores[entry.host] = scores.get(entry.host, 0) + entry.score
        return scores

    async def process_preemption(self, pod: Pod, candidates: Sequence[Eviction]) -> tuple[Eviction, ...]:
        """The evictions of its answer, which may differ from those in the request.

        It answers with uids, which are looked up among all pods of the node. Nodes that were candidates
        before keep their order. The caller decides what to do with an eviction without victims.

        Raises:
            ExtenderError: it did not answer, or named a node or a pod that is not there.
        """
        body = self._preemption_args(pod, candidates)
        result = await self._call(self._settings.preempt_verb, body, wire.ExtenderPreemptionResult.decode)
        left = result.node_name_to_meta_victims
        before = [candidate.node_name for candidate in candidates if candidate.node_name in left]
        return tuple(self._eviction(name, left[name]) for name in dict.fromkeys([*before, *left]))

    async def bind(self, pod: Pod, node_name: str) -> None:
        """Binds the pod through the extender.

        Raises:
            ExtenderError: it did not, or it is unknown whether it did.
        """
        args = wire.ExtenderBindingArgs(
            pod_name=pod.name, pod_namespace=pod.namespace, pod_uid=pod.uid, node=node_name
        )
        result = await self._call(
            self._settings.bind_verb, args.encode(), wire.ExtenderBindingResult.decode, repeatable=False
        )
        if result.error:
            raise self._error(result.error)

    async def close(self) -> None:
        await self._transport.close()

    async def _call(
        self, verb: str, body: bytes, decode: Callable[[bytes], ResponseT], *, repeatable: bool = True
    ) -> ResponseT:
        answer = await self._transport.post(verb, body, repeatable=repeatable)
        try:
            return decode(answer)
        except MalformedResponseError as error:
            url = f"{self.url.rstrip('/')}/{verb}"
            raise self._error(MALFORMED.format(verb=verb, url=url, problem=error)) from error

    def _args(self, pod: Pod, names: Sequence[str]) -> bytes:
        encoded = encoded_object(pod)
        if self._settings.node_cache_capable:
            return wire.ExtenderArgs(encoded, node_names=names).encode()
        try:
            items = self._node_json.nodes(names)
        except KeyError as error:
            raise self._error(NO_SUCH_NODE.format(node=quoted(error.args[0]))) from error
        return wire.ExtenderArgs(encoded, nodes=wire.NodeList(items=items)).encode()

    def _preemption_args(self, pod: Pod, candidates: Sequence[Eviction]) -> bytes:
        encoded = encoded_object(pod)
        if self._settings.node_cache_capable:
            uids = {candidate.node_name: _by_uid(candidate) for candidate in candidates}
            return wire.ExtenderPreemptionArgs(encoded, node_name_to_meta_victims=uids).encode()
        victims: Mapping[str, wire.Victims] = {
            candidate.node_name: wire.Victims(
                [encoded_object(victim) for victim in candidate.victims], candidate.pdb_violations
            )
            for candidate in candidates
        }
        return wire.ExtenderPreemptionArgs(encoded, node_name_to_victims=victims).encode()

    def _eviction(self, node_name: str, left: wire.VictimUIDs) -> Eviction:
        if self._view.node(node_name) is None:
            raise self._error(NO_SUCH_NODE.format(node=quoted(node_name)))
        pods_there = {pod.uid: pod for pod in self._view.pods_on(node_name)}
        for uid in left.uids:
            if uid not in pods_there:
                raise self._error(NO_SUCH_VICTIM.format(url=self.url, uid=uid, node=node_name))
        return Eviction(node_name, tuple(pods_there[uid] for uid in left.uids), left.num_pdb_violations)

    def _error(self, text: str) -> ExtenderError:
        return ExtenderError(self.url, text)


def _by_uid(candidate: Eviction) -> wire.MetaVictims:
    pods = [wire.MetaPod(uid=victim.uid) for victim in candidate.victims]
    return wire.MetaVictims(pods, candidate.pdb_violations)
