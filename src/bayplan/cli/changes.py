"""Changes to a what-if cluster that are options of a command, each with its value as text."""

from __future__ import annotations

from typing import Final

from bayplan.answers.sources.loading import SourceOptions, load_settings
from bayplan.answers.sources.warnings import Warning
from bayplan.answers.whatif import Cluster
from bayplan.answers.whatif.machines import read_node_template, usual_node
from bayplan.answers.whatif.manifests import MAX_PODS, read_manifests
from bayplan.cli.output import number
from bayplan.errors import InputError

MAX_NODES: Final = 100_000


class Changes:
    """Makes changes, and says what was done. The method for an option has the option's name."""

    def __init__(self, cluster: Cluster, source: SourceOptions) -> None:
        self._cluster = cluster
        self._source = source
        self.warnings: list[Warning] = []
        """What the results rest on since the changes."""

    def make(self, option: str, value: str) -> str:
        """Makes the change of one option.

        Raises:
            InputError: the value is malformed, or names something that is not there.
        """
        done: str = getattr(self, option)(value)
        return done

    def add(self, value: str) -> str:
        file, replicas = name_and_number(value)
        pods = self._cluster.add(*read_manifests(file, replicas))
        return f"add {number(len(pods), 'pod')} of {file}"

    def add_nodes(self, value: str) -> str:
        text, sign, like = value.partition("=")
        if not text.isdecimal() or (sign and not like):
            raise InputError(f"--add-nodes {value}: write N or N=LIKE, as in 3=n01 or 3=cpu=8,memory=32Gi")
        if int(text) > MAX_NODES:
            raise InputError(f"--add-nodes {value}: the limit is {MAX_NODES:,} nodes")
        like = like or usual_node(self._cluster)
        names = self._cluster.add_nodes(int(text), read_node_template(like, self._cluster))
        return f"add {number(len(names), 'node')} like {like}"

    def remove_node(self, value: str) -> str:
        return f"remove node {value}: {number(len(self._cluster.remove_node(value)), 'pod')} to place again"

    def drain(self, value: str) -> str:
        return f"drain {value}: {number(len(self._cluster.drain(value)), 'pod')} to place again"

    def cordon(self, value: str) -> str:
        self._cluster.cordon(value)
        return f"cordon {value}"

    def scale(self, value: str) -> str:
        workload, _, text = value.rpartition("=")
        if not workload or not text.isdecimal():
            raise InputError(f"--scale {value}: write NAMESPACE/NAME=N, as in shop/web=12")
        if int(text) > MAX_PODS:
            raise InputError(f"--scale {value}: the limit is {MAX_PODS:,} pods")
        self._cluster.scale(workload, int(text))
        return f"scale {workload} to {text}"

    def new_config(self, value: str) -> str:
        source = self._source
        release = self._cluster.columns.release
        settings = load_settings(value, source.plugin_specs, source.own_flags, release)
        assert settings.config is not None, "a file was read"
        self._cluster.use_config(settings.config, settings.plugins)
        self.warnings += settings.warnings
        return f"schedule with {value}"


def name_and_number(value: str) -> tuple[str, int | None]:
    """NAME[=NUMBER]: a name may contain =, too."""
    name, sign, text = value.rpartition("=")
    return (name, int(text)) if sign and text.isdecimal() else (value, None)
