"""`bayplan support-bundle`: one archive with what a bug report needs, and without secrets.

API objects are redacted as by `bayplan snapshot --redact`. Pods are explained on the redacted cluster, so an
explanation has no names either; each decision is compared with the one on the real cluster, because a
configuration or plugin may depend on a name that was replaced. `answers/sources/secrets.py` removes secrets
from everything else.

What cannot be collected does not stop the command: the archive and the output name it, and the exit status
is 3.
"""

from __future__ import annotations

import asyncio
import io
import os
import platform
import re
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import yaml

from bayplan import __version__
from bayplan.answers.explain.explanation import Explanation, explain
from bayplan.answers.explain.questions import group_identical
from bayplan.answers.explain.rejections import rejections
from bayplan.answers.explain.report import result_report
from bayplan.answers.explain.tables import EvaluatedPod
from bayplan.answers.sources.loaded import LoadedCluster, skip_reason
from bayplan.answers.sources.loading import SourceOptions, load_cluster, load_settings
from bayplan.answers.sources.redaction import redacted, without_manifests
from bayplan.answers.sources.secrets import (
    anonymous_message,
    configuration_without_secrets,
    text_without_secrets,
    without_secrets,
)
from bayplan.answers.sources.snapshot import encode_snapshot, header_of
from bayplan.answers.sources.warnings import Reason
from bayplan.api.meta import Object
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.cli.errors import ExitStatus
from bayplan.cli.options import source_options
from bayplan.cli.output import number
from bayplan.cli.snapshot import check_target, overwrite_option, target_option, write_target
from bayplan.cli.terminal import echo
from bayplan.config import LIBRARY, OwnFlags, own_wire, to_yaml
from bayplan.config.load import read_config_text
from bayplan.errors import APIError, BayplanError
from bayplan.garbage import no_garbage_collection
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.scheduler.core import SchedulingCore

MAX_PODS: Final = 50
"""Pending pods that are explained; of identical pods only one is."""
MAX_LISTED: Final = 5
"""Nodes, scores and victims that an explanation lists; their numbers are complete."""
PAGES: Final = ("/metrics", "/configz", "/statusz", "/flagz")
FORMAT_VERSION: Final = 1

_NO_STDIN: Final = "a support bundle cannot be made of standard input: name a file"
_NOT_REPORTED: Final = "the scheduler has not reported anything"
_OTHER_DECISION: Final = (
    "decided differently on the redacted cluster, because the configuration or a plugin depends on a name, "
    "label or annotation that was replaced"
)
_INVALID: Final = "the configuration cannot be used: {error}"
_QUOTED: Final = re.compile(r'"[^"]*"')
_DEVELOPMENT: Final = 'extra == "dev"'
_REQUIREMENT: Final = re.compile(r"[\w.-]+")
_LEFT_OUT: Final = frozenset(
    {Reason.MISSING_KIND, Reason.ABSENT_PLUGIN, Reason.NOT_RUN, Reason.UNREADABLE_OBJECT}
)
"""Warnings about what is missing from the cluster or from its decisions."""
_README: Final = """\
A support bundle of bayplan {version}, written at {time}.

It has no Secrets, ConfigMaps, environment variables or annotations. Names, labels and images of API objects
are replaced by r0000000, r0000001, …; equal ones stay equal. The configuration and the scheduler's pages keep
host names, paths, and names of profiles and plugins. Read the files before you pass them on.

"""


@dataclass(slots=True)
class Bundle:
    """The files so far, and what could not be collected."""

    files: dict[str, bytes] = field(default_factory=dict)
    missing: list[tuple[str, str]] = field(default_factory=list)
    """What, and why."""

    def add_json(self, name: str, value: Any) -> None:
        self.files[name] = msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"

    def lack(self, what: str, why: object) -> None:
        self.missing.append((what, text_without_secrets(str(why))))

    def archive(self) -> bytes:
        """The archive, with a summary as its first file."""
        now = datetime.now(UTC)
        time = now.isoformat(timespec="seconds").replace("+00:00", "Z")
        # Messages of errors quote names of users, hosts and objects.
        missing = [{"what": what, "why": _QUOTED.sub('"…"', why)} for what, why in self.missing]
        names = sorted(self.files)
        lines = [f"{name}\n" for name in names]
        lines += [f"not collected: {one['what']}: {one['why']}\n" for one in missing]
        readme = _README.format(version=__version__, time=time) + "".join(lines)
        summary = {"formatVersion": FORMAT_VERSION, "time": time, "files": names, "notCollected": missing}
        first = {"README.txt": readme.encode(), "bundle.json": msgspec.json.encode(summary) + b"\n"}
        target = io.BytesIO()
        with tarfile.open(fileobj=target, mode="w:gz") as archive:
            for name, content in (first | self.files).items():
                member = tarfile.TarInfo(f"bayplan-support/{name}")
                member.size, member.mode, member.mtime = len(content), 0o600, int(now.timestamp())
                archive.addfile(member, io.BytesIO(content))
        return target.getvalue()


@click.command("support-bundle")
@target_option("The archive to write, such as support.tar.gz.")
@overwrite_option
@click.option(
    "--scheduler",
    "scheduler_url",
    metavar="URL",
    help="The serving port of the running scheduler (https://HOST:10259), for its metrics, configuration, "
    "flags and queue. The credentials are those of the kubeconfig.",
)
@click.option("--scheduler-ca", default="", metavar="FILE", help="The CA certificate of the scheduler.")
@source_options
@no_garbage_collection()
def support_bundle(
    source: SourceOptions, target: Path, overwrite: bool, scheduler_url: str | None, scheduler_ca: str
) -> int:
    """Collect what a bug report needs in one archive, without secrets.

    It contains versions, the configuration, the redacted cluster, how many pods are pending for which reason,
    and explanations of up to 50 pending pods. The cluster is only read. The exit status is 3 if something
    could not be collected; the output and the archive name it.
    """
    if source.config_file == "-" or "-" in source.files:
        raise click.UsageError(_NO_STDIN)
    check_target(target, overwrite=overwrite)
    bundle = Bundle()
    _configuration(bundle, source)
    loaded = _load(bundle, source)
    bundle.add_json("versions.json", _versions(loaded))
    chosen: list[tuple[Pod, Pod]] = []
    counts = "no cluster"
    if loaded is not None:
        chosen = _cluster(bundle, loaded)
        counts = f"{number(loaded.node_count, 'node')}, {number(loaded.pod_count, 'pod')}"
    if scheduler_url is not None:
        _scheduler(bundle, source, scheduler_url, scheduler_ca, chosen)
    write_target(target, bundle.archive(), overwrite=overwrite)
    echo(f"{target}: {counts}, {number(len(chosen), 'pending pod')} explained")
    for what, why in bundle.missing:
        echo(f"not collected: {what}: {why}")
    return ExitStatus.NOT_JUDGED if bundle.missing else ExitStatus.OK


# Versions and configuration


def _versions(loaded: LoadedCluster | None) -> dict[str, Any]:
    return {
        "bayplan": __version__,
        "python": sys.version.split()[0],
        "implementation": platform.python_implementation(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "packages": dict(_packages()),
        "apiServer": None if loaded is None else loaded.server_version or None,
        "emulatedVersion": None if loaded is None else str(loaded.release),
    }


def _packages() -> Iterator[tuple[str, str]]:
    """The packages that bayplan depends on, as far as they are installed."""
    needed = (line for line in requires("bayplan") or () if _DEVELOPMENT not in line.replace("'", '"'))
    found = (_REQUIREMENT.match(line) for line in needed)
    for name in sorted({one[0] for one in found if one is not None} - {"bayplan"}):
        try:
            yield name, version(name)
        except PackageNotFoundError:
            continue  # of an extra that is not installed


def _configuration(bundle: Bundle, source: SourceOptions) -> None:
    """The configuration as it was given: an invalid one is of interest, too."""
    documents: list[Any] = []
    known = {*LIBRARY, *(plugin.name for plugin in BUILTIN_PLUGINS)}
    if source.config_file is not None:
        text = read_config_text(source.config_file)
        try:
            read = [one for one in yaml.safe_load_all(text) if one is not None]
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = "" if mark is None else f"line {mark.line + 1}: "
            bundle.lack("configuration.yaml", f"{line}{getattr(error, 'problem', None) or 'invalid YAML'}")
            read = []
        for document in read:
            if isinstance(document, dict):
                documents.append(configuration_without_secrets(document, known))
            else:
                bundle.lack("configuration.yaml", "a document is not a mapping")
    if source.own_flags.file is not None:
        documents.append(without_secrets(own_wire(source.own_flags.file)))
    if documents:
        bundle.files["configuration.yaml"] = to_yaml(*documents).encode()


# The cluster


def _load(bundle: Bundle, source: SourceOptions) -> LoadedCluster | None:
    """The cluster, with the default configuration if the given one cannot be used; None if it is a live
    cluster that cannot be read.

    Raises:
        BayplanError: a file or the kubeconfig is invalid.
    """
    try:
        load_settings(source.config_file, source.plugin_specs, source.own_flags, source.release)
    except BayplanError as error:
        bundle.lack("decisions.json with the configuration", _INVALID.format(error=error))
        source = replace(source, config_file=None, plugin_specs=(), own_flags=OwnFlags())
    try:
        return load_cluster(source)
    except APIError as error:
        bundle.lack("cluster.json", error)
        return None


def _cluster(bundle: Bundle, loaded: LoadedCluster) -> list[tuple[Pod, Pod]]:
    """Adds the redacted cluster and its pending pods. Returns the pods that were explained, each with its
    redacted form."""
    for warning in loaded.warnings:
        if warning.reason in _LEFT_OUT:
            bundle.lack("cluster.json or decisions.json", warning.message)
    objects = [without_manifests(item) for item in redacted(loaded.objects)]
    header = header_of(loaded, __version__, redacted=True)
    bundle.files["cluster.json"] = encode_snapshot(objects, header)
    core = loaded.core()
    bundle.add_json("pending.json", _pending(loaded, core))
    hidden = replace(loaded, name="redacted", source="", line=None, objects=objects)
    return _decisions(bundle, loaded.objects, core, objects, hidden.core())


def _pending(loaded: LoadedCluster, core: SchedulingCore) -> list[dict[str, Any]]:
    """How many pods have no node, by what their scheduler has reported; the most frequent first."""
    resources = {
        name for item in loaded.objects if isinstance(item, Node) for name in item.status.allocatable
    }
    counts: Counter[tuple[str, str, str]] = Counter()
    for pod in loaded.objects:
        if not isinstance(pod, Pod) or pod.spec.node_name or pod.is_finished:
            continue
        reported = next((one for one in pod.status.conditions if one.type == "PodScheduled"), None)
        message = _NOT_REPORTED if reported is None else anonymous_message(reported.message, resources)
        skipped = anonymous_message(skip_reason(pod, core).partition(" (")[0], resources)
        counts[message, "" if reported is None else reported.reason, skipped] += 1
    return [
        {"pods": count, "message": message, "reason": reason or None, "notEvaluated": skipped or None}
        for (message, reason, skipped), count in counts.most_common()
    ]


def _decisions(
    bundle: Bundle,
    objects: Sequence[Object],
    core: SchedulingCore,
    hidden_objects: Sequence[Object],
    hidden_core: SchedulingCore,
) -> list[tuple[Pod, Pod]]:
    names = {
        item.name: hidden.name
        for item, hidden in zip(objects, hidden_objects, strict=True)
        if isinstance(item, Node)
    }
    pairs = {
        pod.key: (pod, hidden)
        for pod, hidden in zip(objects, hidden_objects, strict=True)
        if isinstance(pod, Pod) and isinstance(hidden, Pod) and not skip_reason(pod, core)
    }
    groups = group_identical([pod for pod, _ in pairs.values()])
    chosen = [pairs[group[0].key] for group in groups[:MAX_PODS]]
    decisions, others, failed = [], 0, 0
    for group, (pod, hidden) in zip(groups, chosen, strict=False):
        framework = core.frameworks[pod.spec.scheduler_name]
        real = explain(framework, pod)
        found = explain(hidden_core.frameworks[hidden.spec.scheduler_name], hidden)
        evaluated = EvaluatedPod(hidden, hidden_core.frameworks[hidden.spec.scheduler_name], found)
        same = _outcome(real, names) == _outcome(found)
        others += not same
        failed += bool(real.failed_plugin)
        decision = {"pod": hidden.key, "identicalPods": len(group), "sameOnTheCluster": same}
        if real.failed_plugin:
            decision["failedPlugin"] = real.failed_plugin
        decisions.append(decision | without_secrets(_shortened(result_report(evaluated))))
    bundle.add_json("decisions.json", decisions)
    if len(groups) > MAX_PODS:
        left = number(len(groups) - MAX_PODS, "more pending pod")
        bundle.lack("decisions.json", f"{left} of other kinds: only {MAX_PODS} are explained")
    if others:
        bundle.lack("decisions.json", f"{number(others, 'pod')} {_OTHER_DECISION}")
    if failed:
        bundle.lack("decisions.json", f"a plugin failed for {number(failed, 'pod')}")
    return chosen


def _outcome(explanation: Explanation, names: dict[str, str] | None = None) -> tuple[Any, ...]:
    """What must not change when names are replaced: the best nodes, and how many each plugin rejects."""
    best = explanation.best if names is None else [names[name] for name in explanation.best]
    counts: Counter[tuple[str, str]] = Counter()
    for group in rejections(explanation):
        counts[group.status.plugin, group.status.code.label] += len(group.nodes)
    preemption = explanation.preemption
    victims = None if preemption is None else len(preemption.candidates)
    return sorted(best), counts, bool(explanation.error), explanation.failed_plugin, victims


def _shortened(report: dict[str, Any]) -> dict[str, Any]:
    """A result without long lists of nodes, so that a large cluster does not make a large archive."""
    report["feasibleNodeCount"] = len(report["feasibleNodes"])
    for key in ("feasibleNodes", "scores", "missingDevices"):
        report[key] = report[key][:MAX_LISTED]
    for rejection in report["rejections"]:
        del rejection["remedies"]  # for programs; `detail` says the same
        for key in ("nodes", "nominatedPods"):
            rejection[key] = rejection[key][:MAX_LISTED]
    for missing in report["missingDevices"]:
        del missing["remedies"]
        missing["nodeCount"] = len(missing["nodes"])
        missing["nodes"] = missing["nodes"][:MAX_LISTED]
    preemption = report["preemption"]
    if preemption is not None:
        preemption["candidateCount"] = len(preemption["candidates"])
        preemption["candidates"] = preemption["candidates"][:MAX_LISTED]
    return report


# The running scheduler


def _scheduler(
    bundle: Bundle, source: SourceOptions, url: str, ca_file: str, chosen: Sequence[tuple[Pod, Pod]]
) -> None:
    """The pages of the scheduler, and the positions of the explained pods in its queue."""
    # Imported here: it needs a client of API servers.
    from bayplan.answers.sources.live import queue_target, read_pages, scheduler_access

    targets = {queue_target(pod.key): hidden.key for pod, hidden in chosen}
    try:
        access = scheduler_access(source, url, ca_file=ca_file)
        pages = asyncio.run(read_pages(access, [*PAGES, *targets]))
    except BayplanError as error:
        bundle.lack("scheduler", error)
        return
    for page in PAGES:
        content = pages[page]
        if isinstance(content, APIError):
            bundle.lack(f"scheduler{page}", content)
        else:
            bundle.files[f"scheduler{page}"] = _page(content)
    queue, failed = [], 0
    for target, pod in targets.items():
        position = pages[target]
        try:
            if isinstance(position, APIError):
                raise position
            queue.append(without_secrets(msgspec.json.decode(position, type=dict[str, Any])) | {"pod": pod})
        except (APIError, msgspec.DecodeError):
            failed += 1
    bundle.add_json("scheduler/queue.json", queue)
    if failed:
        bundle.lack("scheduler/queue.json", f"the positions of {number(failed, 'pod')} cannot be read")


def _page(content: bytes) -> bytes:
    try:
        value = msgspec.json.decode(content)
    except msgspec.DecodeError:
        return text_without_secrets(content.decode(errors="replace")).encode()
    known = {*LIBRARY, *(plugin.name for plugin in BUILTIN_PLUGINS)}
    config = value.get("componentconfig") if isinstance(value, dict) else None
    cleaned = without_secrets(value)
    if isinstance(config, dict):
        cleaned["componentconfig"] = configuration_without_secrets(config, known)
    return msgspec.json.format(msgspec.json.encode(cleaned), indent=1) + b"\n"
