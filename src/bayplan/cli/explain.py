"""`bayplan explain`: why a pod is pending, or on its node; and what is the matter with a node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click

from bayplan.answers.explain.groups import explain_group, next_attempt
from bayplan.answers.explain.printing import print_group, print_node, print_pod
from bayplan.answers.explain.questions import PodQuestions, PodState, explain_node
from bayplan.answers.explain.report import node_report, pod_report, source_report
from bayplan.answers.sources.loaded import LoadedCluster, Origin
from bayplan.answers.sources.loading import SourceOptions, default_namespace, load_cluster
from bayplan.answers.sources.warnings import Reason, Warning
from bayplan.answers.whatif.scaling import pods_of_workload
from bayplan.api.pod import Pod
from bayplan.api.workloads import ReplicaSet
from bayplan.cli.errors import ExitStatus, FailedPlugins, did_you_mean, traceback_option
from bayplan.cli.options import KIND_NAMES, kind_of, source_options, without_kind
from bayplan.cli.output import TABLE, make_console, number, output_option, print_document
from bayplan.cli.terminal import echo
from bayplan.errors import InputError
from bayplan.garbage import no_garbage_collection
from bayplan.scheduler.core import SchedulingCore

if TYPE_CHECKING:
    from bayplan.answers.capacity_queues import QueueQuestions

_STATES: Final = {
    "Absent": "the scheduler has no such pending pod",
    "InFlight": "being scheduled now",
    "WaitingAtPermit": "waiting at Permit",
    "Incomplete": "waiting for its PodGroup",
}
_NOT_RUN: Final = (
    "plugin {plugin} of the pod's scheduler rejected or holds the pod, and is not run here: pass --config or "
    "--plugin {plugin}"
)
UNKNOWN_QUEUE: Final = "the position in the scheduler's queue cannot be seen from outside"


_scheduler_option: Final = click.option(
    "--scheduler",
    "scheduler_url",
    metavar="URL",
    help="The serving port of the bayplan that schedules the pods (https://HOST:10259), for their position "
    "in the queue. The credentials are those of the kubeconfig.",
)
_scheduler_ca_option: Final = click.option(
    "--scheduler-ca", default="", metavar="FILE", help="The CA certificate of the scheduler."
)


class KindGroup(click.Group):
    """A group whose commands are kinds, written as for kubectl: `pod/web`, `pods web`, `deploy/web`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word, slash, name = args[0].partition("/")
        kind = kind_of(word)
        return super().resolve_command(ctx, [kind, *([name] if slash else []), *args[1:]] if kind else args)


@click.group(cls=KindGroup)
def explain() -> None:
    """Explain why a pod is pending or on its node, or what a node has and rejects.

    KIND/NAME is the same as KIND NAME. Of a Deployment, Job or other workload, a pending pod is explained, or
    its first one.

    The cluster comes from files (-f) or is read from an API server. Nothing is changed. Decisions equal
    kube-scheduler's, so the cluster need not run bayplan.
    """


@click.command("pod")
@click.argument("name", metavar="[NAMESPACE/]NAME")
@click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    help="Namespace of the pod. [default: that of the kubeconfig's context; for files, default]",
)
@click.option("-A", "--all-namespaces", is_flag=True, help="Look for the name in all namespaces.")
@_scheduler_option
@_scheduler_ca_option
@output_option
@traceback_option
@source_options
@click.pass_context
@no_garbage_collection()
def explain_pod(
    ctx: click.Context,
    /,
    source: SourceOptions,
    name: str,
    namespace: str | None,
    all_namespaces: bool,
    scheduler_url: str | None,
    scheduler_ca: str,
    output: str,
    traceback: bool,
) -> int:
    """Explain why a pod is pending, or why it is on its node.

    For a pending pod: which plugins reject which nodes and how near they are, what preemption would do, and
    which events bring the pod back. For an assigned pod: the scores of its node and of the next best ones, on
    the cluster without the pod.
    """
    loaded = load_cluster(source)
    questions = PodQuestions(loaded)
    kind = ctx.info_name or "pod"
    key = name if "/" in name else f"{namespace or default_namespace(source)}/{name}"
    if all_namespaces:
        key = _in_any_namespace(questions, kind, name)
    pod = _pod(questions, key) if kind == "pod" else _pod_of(questions, kind, key)
    key = pod.key
    queues = _queue_questions(questions)
    answer = questions.answer(pod)
    queue = {"visible": False, "reason": UNKNOWN_QUEUE}
    if answer.state is not PodState.ASSIGNED:
        queue |= _queue(source, loaded, key, scheduler_url, scheduler_ca)
        answer = replace(answer, warnings=(*_not_run(questions.core, pod, queue), *answer.warnings))
    capacity = None if answer.group is None else answer.group.capacity
    if capacity is None and queues is not None and answer.state is PodState.PENDING:
        capacity = queues.pod(pod)
    if output == TABLE:
        shown = answer.state is PodState.PENDING or queue["visible"]
        console = make_console()
        if capacity is not None:
            for line in capacity.text(pod.key):
                console.print(line, soft_wrap=True)
        has_position = capacity is None
        print_pod(console, loaded, answer, _queue_text(queue, has_position) if shown else "")
    else:
        report = pod_report(loaded, answer, queue)
        if capacity is not None:
            report["capacityQueue"] = capacity.described()
        print_document("PodExplanation", report, output)
    failed = FailedPlugins(traceback)
    if answer.explanation is not None:
        failed.add(answer.explanation)
    failed.raise_any()
    return ExitStatus.NOT_JUDGED if questions.core.framework_for(pod) is None else ExitStatus.OK


for _kind in KIND_NAMES:
    if _kind != "node":
        _help = (
            explain_pod.help if _kind == "pod" else f"Explain a pending pod of a {_kind}, or its first one."
        )
        explain.add_command(
            click.Command(_kind, callback=explain_pod.callback, params=explain_pod.params, help=_help)
        )


def _queue_questions(questions: PodQuestions) -> QueueQuestions | None:
    """Questions about the capacity queues, if the configuration has any."""
    config = questions.loaded.config
    if config is None or config.bayplan.queues is None:
        return None
    # Imported here: few configurations have queues.
    from bayplan.answers.volcano_queues import ask_queues

    return ask_queues(questions.loaded, config.bayplan.queues, questions.core)


def _pod(questions: PodQuestions, key: str) -> Pod:
    try:
        return questions.pod(key)
    except InputError as error:
        hint = did_you_mean(key, questions.keys)
        raise InputError(f"{error.problem}.{hint}", object_key=error.object_key) from None


def _pods_of(questions: PodQuestions, kind: str, key: str) -> list[Pod]:
    """The pods of a workload, those without a node first."""
    namespace, _, name = key.partition("/")
    objects = questions.loaded.objects
    sets = [item for item in objects if isinstance(item, ReplicaSet)]
    found = pods_of_workload(namespace, name, (item for item in objects if isinstance(item, Pod)), sets)
    owner_kind = "replicaset" if kind == "deployment" else kind
    own = (pod for pod in found if (owner := pod.metadata.controller()) and owner.kind.lower() == owner_kind)
    return sorted(own, key=lambda pod: (bool(pod.spec.node_name), pod.key))


def _pod_of(questions: PodQuestions, kind: str, key: str) -> Pod:
    pods = _pods_of(questions, kind, key)
    if not pods:
        raise InputError(f"it has no pods in {questions.loaded.name}", object_key=f"{kind} {key}")
    pending = sum(not pod.spec.node_name for pod in pods)
    echo(f"{kind} {key}: {number(len(pods), 'pod')}, {pending:,} pending; this is {pods[0].key}", err=True)
    return pods[0]


def _in_any_namespace(questions: PodQuestions, kind: str, name: str) -> str:
    """`namespace/name` of the only pod or workload with this name."""
    namespaces = {key.partition("/")[0] for key in questions.keys}
    keys = [f"{one}/{name}" for one in sorted(namespaces)]
    found = [
        key for key in keys if (key in questions.keys if kind == "pod" else _pods_of(questions, kind, key))
    ]
    if len(found) > 1:
        raise InputError(f"there are several: {', '.join(found)}", object_key=f"{kind} {name}")
    return found[0] if found else f"*/{name}"


def _not_run(core: SchedulingCore, pod: Pod, queue: dict[str, Any]) -> Iterator[Warning]:
    """The plugins that rejected or hold the pod in its scheduler, and that are not run here."""
    framework = core.framework_for(pod)
    if framework is None:
        return
    here = {plugin.name for plugin in framework.profile.all_plugins()}
    for name in queue.get("plugins", ()):
        if name not in here:
            yield Warning(_NOT_RUN.format(plugin=name), pod.key, Reason.ABSENT_PLUGIN, name)


def _queue(
    source: SourceOptions, loaded: LoadedCluster, key: str, url: str | None, ca_file: str
) -> dict[str, Any]:
    """The position of the pod in the queue, if it can be seen: a bayplan schedules the pod."""
    if url is None and loaded.origin is not Origin.LIVE:
        return {}
    # Imported here: it needs a client of API servers.
    from bayplan.answers.sources.live import embedded_queue_position, queue_position

    if url is not None:
        return {"visible": True, **queue_position(source, url, key, ca_file=ca_file)}
    found = embedded_queue_position(source, loaded.server_version, key)
    return {} if found is None else {"visible": True, **found}


def _queue_text(queue: dict[str, Any], has_position: bool) -> str:
    """The position in the queue, in one line; without the number where capacity queues have their own."""
    if not queue["visible"]:
        return str(queue["reason"])
    state = str(queue.get("state", "unknown"))
    if state == "unschedulable" and not queue.get("attempts"):
        state = "gated"  # only PreEnqueue puts a pod there that was never tried
    parts = [_STATES.get(state, state)]
    if has_position and "position" in queue:
        parts.append(f"position {queue['position']} of {queue['length']}")
    if queue.get("attempts"):
        parts.append(f"after {number(queue['attempts'], 'attempt')}")
    if queue.get("plugins"):
        parts.append(f"because of {', '.join(queue['plugins'])}")
    if "secondsToNextAttempt" in queue:
        parts.append(f"next attempt in {queue['secondsToNextAttempt']} s")
    elif "secondsSinceLastAttempt" in queue:
        parts.append(f"for {queue['secondsSinceLastAttempt']} s")
    return ", ".join(parts)


@explain.command("node")
@click.argument("name")
@output_option
@traceback_option
@source_options
@no_garbage_collection()
def explain_node_command(source: SourceOptions, name: str, output: str, traceback: bool) -> int:
    """Explain what runs on a node, what is free there, and which pending pods it rejects and why."""
    loaded = load_cluster(source)
    questions = PodQuestions(loaded)
    name = without_kind(name, "node")
    try:
        answer = explain_node(questions, name)
    except InputError as error:
        nodes = questions.core.cluster.nodes.row_of
        raise InputError(
            f"{error.problem}.{did_you_mean(name, nodes)}", object_key=error.object_key
        ) from None
    if output == TABLE:
        print_node(make_console(), loaded, answer)
    else:
        print_document("NodeExplanation", node_report(loaded, answer), output)
    failed = FailedPlugins(traceback)
    for one in answer.waiting:
        failed.add(one.explanation)
    failed.raise_any()
    return ExitStatus.NOT_JUDGED if answer.not_evaluated else ExitStatus.OK


@explain.command("group")
@click.argument("name", metavar="[NAMESPACE/]NAME")
@click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    help="Namespace of the group. [default: that of the kubeconfig's context; for files, default]",
)
@_scheduler_option
@_scheduler_ca_option
@output_option
@source_options
@no_garbage_collection()
def explain_group_command(
    source: SourceOptions,
    name: str,
    namespace: str | None,
    scheduler_url: str | None,
    scheduler_ca: str,
    output: str,
) -> int:
    """Explain why a pod group waits: which members are missing, which fit where, what preemption would do.

    Groups are PodGroups and CompositePodGroups of Kubernetes 1.37 (scheduling.k8s.io), and PodGroups of
    Coscheduling (scheduling.x-k8s.io) or of Volcano (scheduling.volcano.sh).
    """
    loaded = load_cluster(source)
    place, slash, bare = name.partition("/")
    key = (place, bare) if slash else (namespace or default_namespace(source), name)
    answer, queue = explain_group(loaded, *key), dict[str, Any]()
    if answer.waiting:
        queue = _queue(source, loaded, answer.waiting[0].pod, scheduler_url, scheduler_ca)
    if "members" in queue:
        answer = explain_group(loaded, *key, queue["members"])
    attempt = next_attempt(queue)
    if output == TABLE:
        console = make_console()
        if answer.capacity is not None:
            for line in answer.capacity.text(str(answer.key)):
                console.print(line, soft_wrap=True)
        print_group(console, loaded, answer, attempt)
    else:
        report = answer.as_json() | {"source": source_report(loaded), "assumption": answer.assumption}
        if attempt:
            report["nextAttempt"] = attempt
        print_document("GroupExplanation", report, output)
    return ExitStatus.OK if answer.is_judged else ExitStatus.NOT_JUDGED
