"""Reads a live cluster: one list of each kind that scheduling reads. Nothing is written.

A kind that may not be listed is left out with a warning, except nodes and pods, without which there is
nothing to say. `deploy/` has a role with all permissions that this needs.

It also reads the position of a pod in the queue of a running bayplan (`GET /queue`): `bayplan run` answers at
its serving port, the embedded cluster of `bayplan up` at its API server. The credentials are those of the
kubeconfig; the scheduler asks the API server whether the user may get that path.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import quote

import msgspec

from bayplan.answers.sources.loading import SourceOptions, default_kubeconfig
from bayplan.answers.sources.warnings import Reason, Warning
from bayplan.api import volcano
from bayplan.api.devices import ResourceClaimTemplate
from bayplan.api.kinds import KINDS, Kind, Watch
from bayplan.api.meta import Object
from bayplan.api.node import Node, NodeResourceTopology
from bayplan.api.pod import Pod
from bayplan.api.reading import Unreadable, stand_in, with_readable_quantities
from bayplan.api.releases import Release
from bayplan.api.workloads import (
    DaemonSet,
    Deployment,
    ElasticQuota,
    HorizontalPodAutoscaler,
    Job,
    LimitRange,
    PriorityClass,
    ResourceQuota,
    RuntimeClass,
)
from bayplan.api.workloads import (
    PodGroup as CoschedulingPodGroup,
)
from bayplan.client.access import Access
from bayplan.client.api_errors import NotServedError
from bayplan.client.http import read_version
from bayplan.client.kubeconfig import load_access
from bayplan.client.list_watch import list_pages
from bayplan.client.requests import Connections, Requests, make_bucket
from bayplan.embedded.server.http.discovery import EMBEDDED_SUFFIX
from bayplan.errors import APIError, ForbiddenError, NotFoundError, ServerError, UnauthorizedError

QPS, BURST = 50.0, 100
COMPONENT: Final = "sources"

_MORE: Final = (
    PriorityClass, RuntimeClass, LimitRange, ResourceQuota, Deployment, DaemonSet, Job,
    HorizontalPodAutoscaler, ResourceClaimTemplate, CoschedulingPodGroup, volcano.PodGroup, volcano.Queue,
    ElasticQuota, NodeResourceTopology,
)  # fmt: skip
"""Kinds that no scheduler watches by itself: they concern pods that are added to the cluster."""
_NEEDED: Final = (Node, Pod)

_FORBIDDEN: Final = "{plural} cannot be listed ({error}): evaluated as if there were none"
_NO_CONFIG_MAP: Final = "there is no ConfigMap {name}: evaluated with a capacity queue for each namespace"
_NO_ACCESS: Final = "ConfigMap {name} cannot be read ({error})"
_OTHER_VERSION: Final = "the API server has version {server}: evaluated as Kubernetes {release}"
_TOO_SLOW: Final = "{server} was not read within {seconds:g} s"
_UNREADABLE: Final = "{field} cannot be read ({problem}): {effect}"


def read_kinds(plugin_kinds: Sequence[type[Object]] = ()) -> tuple[Kind, ...]:
    """The kinds that are listed, pods last: what they refer to was listed before."""
    records: list[type[Object]] = [*_MORE, *plugin_kinds]
    kinds = dict.fromkeys((*KINDS.watched(), *(KINDS.of(record) for record in records)))
    return tuple(sorted(kinds, key=lambda kind: kind.record is Pod))


@dataclass(frozen=True, slots=True)
class Listing:
    """Everything that was listed."""

    objects: tuple[Object, ...]
    listed: frozenset[str]
    """Kinds that are complete."""
    server_version: str
    release: Release
    """The release nearest to the server's version."""
    warnings: tuple[Warning, ...]
    queues_texts: Mapping[str, str]
    """By namespace/name: the queues.yaml of a ConfigMap, if one was asked for and can be read."""


def list_cluster(
    access: Access, plugin_kinds: Sequence[type[Object]] = (), *, config_map: str = ""
) -> Listing:
    """Lists the cluster.

    Args:
        config_map: the ConfigMap with the capacity queues, as namespace/name; "" if there is none.

    Raises:
        APIError: it cannot be reached, or nodes or pods cannot be listed.
    """
    return asyncio.run(list_cluster_async(access, plugin_kinds, config_map=config_map))


async def list_cluster_async(
    access: Access,
    plugin_kinds: Sequence[type[Object]] = (),
    *,
    config_map: str = "",
    time_limit: float | None = None,
) -> Listing:
    """The same, for callers that have an event loop.

    Args:
        time_limit: seconds for everything; None: no limit. Longer is an APIError.
    """
    try:
        async with asyncio.timeout(time_limit):
            return await _list(access, plugin_kinds, config_map)
    except TimeoutError as error:
        raise ServerError(_TOO_SLOW.format(server=access.server, seconds=time_limit or 0)) from error


async def _list(access: Access, plugin_kinds: Sequence[type[Object]], config_map: str) -> Listing:
    connections = Connections(access)
    try:
        requests = Requests(connections, make_bucket(QPS, BURST), component=COMPONENT)
        version = await read_version(requests)
        objects: list[Object] = []
        listed: set[str] = set()
        release, is_same = version.nearest_release()
        warnings: list[Warning] = []
        if not is_same:
            text = _OTHER_VERSION.format(server=version.git_version, release=release)
            warnings.append(Warning(text, reason=Reason.OTHER_VERSION, object=version.git_version))
        for kind in read_kinds(plugin_kinds):
            try:
                found = (await list_pages(requests, kind.record)).items
            except NotServedError:
                if kind.watch is Watch.REQUIRED:
                    raise
                found = ()
            except ForbiddenError as error:
                if kind.record in _NEEDED:
                    raise
                if kind.gate and kind.gate not in release.gates:
                    continue  # The release does not use it by default, so the role need not have it.
                text = _FORBIDDEN.format(plural=kind.plural, error=error)
                warnings.append(Warning(text, reason=Reason.MISSING_KIND, object=kind.plural))
                continue
            listed.add(kind.name)
            for item, warning in map(_readable, found):
                if item is not None:
                    objects.append(item)
                warnings.extend(warning)
        queues = await _read_queues(requests, config_map, warnings) if config_map else {}
        return Listing(
            tuple(objects), frozenset(listed), version.git_version, release, tuple(warnings), queues
        )
    finally:
        await connections.close()


async def _read_queues(requests: Requests, name: str, warnings: list[Warning]) -> dict[str, str]:
    """The queues.yaml of a ConfigMap, by its name; nothing, with a warning, if it cannot be read."""
    # Imported here: few configurations have queues.
    from bayplan.scheduler.queue_config_map import ConfigMap, text_of

    namespace, _, own_name = name.partition("/")
    try:
        body = await requests.send("GET", KINDS.of(ConfigMap).item(own_name, namespace))
        return {name: text_of(msgspec.json.decode(body, type=ConfigMap))}
    except NotFoundError:
        text = _NO_CONFIG_MAP.format(name=name)
        warnings.append(Warning(text, reason=Reason.MISSING_OBJECT, object=f"ConfigMap {name}"))
        return {name: text_of(None)}
    except ForbiddenError as error:
        text = _NO_ACCESS.format(name=name, error=error)
        warnings.append(Warning(text, reason=Reason.MISSING_OBJECT, object=f"ConfigMap {name}"))
        return {}


def _readable(item: Object) -> tuple[Object | None, tuple[Warning, ...]]:
    """The object, or what a scheduler uses in its place (`api/reading.py`)."""
    read = with_readable_quantities(item)
    if not isinstance(read, Unreadable):
        return read, ()
    used = stand_in(read)
    return used, tuple(_unreadable(read, is_used=used is not None))


def _unreadable(item: Unreadable, *, is_used: bool) -> Iterator[Warning]:
    key = f"{item.kind} {item.key}"
    effect = "the scheduler uses a substitute" if is_used else "the object is treated as absent"
    text = _UNREADABLE.format(field=f"{key}: {item.fields[0]}", problem=item.problem, effect=effect)
    yield Warning(text, reason=Reason.UNREADABLE_OBJECT, object=key)


_FAILED: Final = "the queue of the scheduler at {url} cannot be read: {why}"
_NOT_ALLOWED: Final = "{error}. Allow the user to get the non-resource URL /queue"
_NO_QUEUE: Final = "it is not a bayplan, which would serve /queue"
_TRUST: Final = ". Pass the CA of the scheduler's certificate with --scheduler-ca"
_NO_POSITION: Final = "the answer is not a position in a queue: {error}"


def queue_position(options: SourceOptions, url: str, pod: str, *, ca_file: str = "") -> dict[str, Any]:
    """The position of a pod, as the scheduler at this URL gives it.

    Args:
        options: the kubeconfig and context with the credentials.
        ca_file: the certificate of the scheduler's authority; empty: the system's.

    Raises:
        ConfigError: the kubeconfig is invalid.
        APIError: the scheduler cannot be reached, or rejects the request.
    """
    access = scheduler_access(options, url, ca_file=ca_file)
    try:
        return asyncio.run(read_position(access, pod))
    except (NotServedError, NotFoundError) as error:
        raise APIError(_FAILED.format(url=url, why=_NO_QUEUE)) from error
    except (ForbiddenError, UnauthorizedError) as error:
        raise APIError(_FAILED.format(url=url, why=_NOT_ALLOWED.format(error=error))) from error
    except APIError as error:
        hint = _TRUST if not ca_file and "certificate" in str(error).lower() else ""
        raise APIError(_FAILED.format(url=url, why=f"{error}{hint}")) from error


def scheduler_access(options: SourceOptions, url: str, *, ca_file: str = "") -> Access:
    """How to reach the scheduler at this URL, with the credentials of the kubeconfig.

    Raises:
        ConfigError: the kubeconfig is invalid.
    """
    access = _access(options)
    tls = replace(access.tls, ca_file=ca_file, ca_data=b"", server_name="", insecure=False)
    return replace(access, server=url.rstrip("/"), tls=tls)


async def read_pages(access: Access, targets: Sequence[str]) -> dict[str, bytes | APIError]:
    """The content of several pages of a scheduler, or the error of each, by path and query."""
    connections = Connections(access)
    found: dict[str, bytes | APIError] = {}
    try:
        requests = Requests(connections, component="support-bundle", accept="*/*")
        for target in targets:
            try:
                found[target] = await requests.send("GET", target)
            except APIError as error:
                found[target] = error
        return found
    finally:
        await connections.close()


def embedded_queue_position(options: SourceOptions, server_version: str, pod: str) -> dict[str, Any] | None:
    """The same for the embedded cluster; None if it is another one, or no scheduler runs in it."""
    if not server_version.endswith(EMBEDDED_SUFFIX):
        return None
    try:
        return asyncio.run(read_position(_access(options), pod))
    except (NotServedError, NotFoundError):
        return None


def _access(options: SourceOptions) -> Access:
    kubeconfig = options.kubeconfig or default_kubeconfig(context=options.context)
    return load_access(kubeconfig, context=options.context)


def queue_target(pod: str) -> str:
    """Path and query for the position of a pod."""
    return f"/queue?pod={quote(pod, safe='/')}"


async def read_position(access: Access, pod: str) -> dict[str, Any]:
    """One request to the scheduler."""
    connections = Connections(access)
    try:
        body = await Requests(connections, component="explain").send("GET", queue_target(pod))
        found: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Any])
        return found
    except msgspec.DecodeError as error:
        raise APIError(_NO_POSITION.format(error=error)) from error
    finally:
        await connections.close()
