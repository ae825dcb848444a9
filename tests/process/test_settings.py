"""Flags and configuration file together: which of them counts, and the errors where they are wrong."""

from __future__ import annotations

import base64
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from bayplan.api.releases import V1_36, V1_37, Release
from bayplan.cli.main import main
from bayplan.config import BayplanConfiguration
from bayplan.errors import BayplanError
from bayplan.framework.args import Duration
from bayplan.framework.points import TieBreak
from bayplan.process.command_line import parse
from bayplan.process.settings import Settings, make_settings
from bayplan.process.starting import settings_of_any_release
from tests.client.http.certificates import authority

from .running import kubeconfig

FRACTIONAL = "DRAFractionalCapacityRange"
OLD_GATE = "--feature-gates=SchedulerQueueingHints=true"
HEAD = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Settings]:
    """Settings from a configuration file (None: without) and flags, relative to a directory of the test."""
    monkeypatch.chdir(tmp_path)
    for name in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "KUBERNETES_MASTER"):
        monkeypatch.delenv(name, raising=False)
    kubeconfig(tmp_path, "https://from-kubeconfig:6443")

    def make(config: dict[str, Any] | None, *flags: str) -> Settings:
        if config is None:
            return make_settings(parse(flags, "bayplan run"))
        Path("config.yaml").write_text(yaml.safe_dump({**HEAD, **config}))
        return make_settings(parse(["--config=config.yaml", *flags], "bayplan run"))

    return make


OWN = "apiVersion: bayplan/v1\nkind: BayplanConfiguration\n"


def test_own_settings(settings: Callable[..., Settings]) -> None:
    """A flag beats the file of --bayplan-config, which replaces the document in the file of --config."""
    access = "--master=https://here:6443"
    Path("own.yaml").write_text(f"{OWN}tieBreak: FirstNode\nslowCycleThreshold: 3s\n")
    assert settings({}, access).config.bayplan == BayplanConfiguration()
    given = settings({}, access, "--bayplan-config=own.yaml", "--slow-cycle-threshold=2s")
    assert given.config.bayplan == BayplanConfiguration(
        tie_break=TieBreak.FIRST_NODE, slow_cycle_threshold=Duration.of(2)
    )
    given = settings({}, access, "--bayplan-config=own.yaml", "--tie-break=KubeScheduler")
    assert given.config.bayplan == BayplanConfiguration(slow_cycle_threshold=Duration.of(3))
    with pytest.raises(BayplanError, match="no such file"):
        settings({}, access, "--bayplan-config=missing.yaml")


CONNECTED = {"clientConnection": {"kubeconfig": "kubeconfig", "qps": 7, "burst": 9}}

PRECEDENCE: list[Any] = [
    pytest.param(
        None,
        ["--kubeconfig=kubeconfig"],
        lambda s: s.access.server,
        "https://from-kubeconfig:6443",
        id="a kubeconfig by flag",
    ),
    pytest.param(
        CONNECTED,
        [],
        lambda s: s.access.server,
        "https://from-kubeconfig:6443",
        id="a kubeconfig by the file",
    ),
    pytest.param(
        CONNECTED,
        ["--kubeconfig=nowhere"],
        lambda s: s.access.server,
        "https://from-kubeconfig:6443",
        id="a kubeconfig of the file beats the flag",
    ),
    pytest.param(
        {"clientConnection": {"qps": 7}},
        ["--kubeconfig=kubeconfig"],
        lambda s: (s.access.server, s.config.client_connection.qps),
        ("https://from-kubeconfig:6443", 7.0),
        id="a file without a kubeconfig leaves it to the flag",
    ),
    pytest.param(
        CONNECTED,
        ["--master=http://flag:1"],
        lambda s: s.access.server,
        "http://flag:1",
        id="--master beats the kubeconfig of the file",
    ),
    pytest.param(
        None,
        ["--kubeconfig=kubeconfig", "--master=http://flag:1"],
        lambda s: s.access.server,
        "http://flag:1",
        id="--master beats the kubeconfig of the flag",
    ),
    pytest.param(
        None,
        ["--master=http://x:1", "--kube-api-qps=3", "--kube-api-burst=4"],
        lambda s: (s.config.client_connection.qps, s.config.client_connection.burst),
        (3.0, 4),
        id="limits by flag",
    ),
    pytest.param(
        CONNECTED,
        ["--kube-api-qps=3", "--kube-api-burst=4"],
        lambda s: (s.config.client_connection.qps, s.config.client_connection.burst),
        (7.0, 9),
        id="limits by the file",
    ),
    pytest.param(
        None,
        ["--master=http://x:1", "--profiling=false"],
        lambda s: s.config.enable_profiling,
        False,
        id="profiling by flag",
    ),
    pytest.param(
        CONNECTED,
        ["--profiling=false"],
        lambda s: s.config.enable_profiling,
        True,
        id="profiling by the file",
    ),
    pytest.param(
        {
            **CONNECTED,
            "leaderElection": {"leaderElect": True, "resourceName": "mine", "leaseDuration": "40s"},
        },
        ["--leader-elect-resource-name=yours"],
        lambda s: (s.config.leader_election.resource_name, s.config.leader_election.lease_duration),
        ("yours", Duration.of(40)),
        id="leader election by flag beats the file, one by one",
    ),
    pytest.param(
        {**CONNECTED, "leaderElection": {"leaderElect": True}},
        ["--leader-elect=false"],
        lambda s: s.election(),
        None,
        id="no leader election by flag",
    ),
    pytest.param(
        {**CONNECTED, "leaderElection": {"leaderElect": False}},
        [],
        lambda s: s.election(),
        None,
        id="a flag that is not given does not count",
    ),
    pytest.param(
        CONNECTED,
        ["--feature-gates=SchedulerPopFromBackoffQ=false"],
        lambda s: "SchedulerPopFromBackoffQ" in s.for_scheduler.gates,
        False,
        id="a gate is turned off",
    ),
    pytest.param(
        CONNECTED,
        ["--plugin=bayplan.plugins.library.coscheduling:Coscheduling"],
        lambda s: [plugin.name for plugin in s.plugins],
        ["Coscheduling"],
        id="a plugin by flag",
    ),
    pytest.param(
        CONNECTED,
        ["--plugin=bayplan.plugins.library.coscheduling:Coscheduling"],
        lambda s: s.completed()["profiles"][0]["plugins"]["multiPoint"]["enabled"][-1],
        {"name": "Coscheduling", "weight": 0},
        id="a plugin by flag is enabled",
    ),
]


@pytest.mark.parametrize(("config", "flags", "read", "value"), PRECEDENCE)
def test_which_counts(
    settings: Callable[..., Settings],
    config: dict[str, Any] | None,
    flags: list[str],
    read: Callable[[Settings], Any],
    value: Any,
) -> None:
    assert read(settings(config, *flags)) == value


WRONG: list[Any] = [
    pytest.param(
        None,
        [],
        "invalid configuration: no configuration has been provided, "
        "try setting KUBERNETES_MASTER environment variable",
        id="no version",
    ),
    pytest.param(
        None, ["--kubeconfig=nowhere"], "stat nowhere: no such file or directory", id="no such kubeconfig"
    ),
    pytest.param(
        None, ["--config=nowhere.yaml"], "nowhere.yaml: no such file or directory", id="no such file"
    ),
    pytest.param({"parallelism": "x"}, [], "config.yaml:3: parallelism:", id="a file that cannot be read"),
    pytest.param(
        {"podInitialBackoffSeconds": 0, "podMaxBackoffSeconds": -1},
        [],
        "[podInitialBackoffSeconds: Invalid value: 0: must be greater than 0, podMaxBackoffSeconds: Invalid",
        id="a file that is invalid",
    ),
    pytest.param(
        CONNECTED,
        ["--leader-elect-lease-duration=5s"],
        'leaderElection.leaseDuration: Invalid value: "10s": must be greater than `RenewDeadline`',
        id="a flag that is invalid with the file",
    ),
    pytest.param(
        CONNECTED,
        ["--leader-elect-resource-name="],
        "leaderElection.resourceName: Required value",
        id="a flag that removes something",
    ),
    pytest.param(
        None,
        ["--secure-port=70000"],
        "--secure-port 70000 must be between 1 and 65535, inclusive. It cannot be turned off with 0",
        id="too large a port",
    ),
    pytest.param(
        None,
        ["--secure-port=-1"],
        "--secure-port -1 must be between 0 and 65535, inclusive. 0 for turning off secure port",
        id="a negative port",
    ),
    pytest.param(
        None,
        ["--secure-port=-1", "--min-compatibility-version=kube:1.50"],
        "[--min-compatibility-version kube:1.50: should be 1.N, up to 1.37, --secure-port -1 must be",
        id="several at once",
    ),
    pytest.param(
        None,
        ["--show-hidden-metrics-for-version=1.20"],
        'metrics.showHiddenMetricsForVersion: Invalid value: "1.20": must be omitted or have the value '
        "'1.36'; only the previous minor version is allowed",
        id="metrics of long ago",
    ),
    pytest.param(
        None,
        ["--allow-metric-labels=a,b=c"],
        "--allow-metric-labels: not implemented yet",
        id="an option that is not built",
    ),
    pytest.param(
        None, ["--feature-gates=Foo=true"], "unrecognized feature gate: Foo", id="a gate that does not exist"
    ),
    pytest.param(
        None,
        ["--feature-gates=DRADerivedAttributes=true"],
        "cannot turn on feature gate DRADerivedAttributes: not implemented yet",
        id="a gate that is not built",
    ),
    pytest.param(
        None, ["--plugin=nowhere.py:X"], "plugin nowhere.py:X: there is no file nowhere.py", id="no plugin"
    ),
]


@pytest.mark.parametrize(("config", "flags", "message"), WRONG)
def test_what_is_wrong(
    settings: Callable[..., Settings], config: dict[str, Any] | None, flags: list[str], message: str
) -> None:
    with pytest.raises(BayplanError) as caught:
        settings(config, *flags)
    assert str(caught.value).startswith(message)


UNCHECKED: list[Any] = [
    pytest.param(
        ["--leader-elect-lease-duration=5s"],
        "couldn't create leader elector: leaseDuration must be greater than renewDeadline",
        id="a lease that is too short",
    ),
    pytest.param(
        ["--leader-elect-renew-deadline=2s"],
        "couldn't create leader elector: renewDeadline must be greater than retryPeriod*JitterFactor",
        id="too little time to renew",
    ),
    pytest.param(
        ["--leader-elect-resource-lock=foo"],
        "couldn't create resource lock: Invalid lock-type foo",
        id="another kind of lock",
    ),
    pytest.param(
        ["--kube-api-burst=0"],
        "burst is required to be greater than 0 when RateLimiter is not set and QPS is set to greater than 0",
        id="a burst of none",
    ),
]


@pytest.mark.parametrize(
    ("score", "gates", "release"),
    [
        pytest.param(5, [], V1_37, id="a file only for v1.37"),
        pytest.param(None, [OLD_GATE], V1_36, id="a gate only of v1.36"),
        pytest.param(50, [], None, id="a file for no version"),
        pytest.param(5, [OLD_GATE], None, id="file and gate of different versions"),
    ],
)
def test_settings_are_valid_before_the_version_is_known_if_any_version_accepts_them(
    score: int | None, gates: list[str], release: Release | None, tmp_path: Path
) -> None:
    args = {} if score is None else {"shape": [{"utilization": 0, "score": score}]}
    profile = {"pluginConfig": [{"name": "VolumeBinding", "args": args}]}
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump({**HEAD, "profiles": [profile]}))
    flags = parse([f"--config={file}", "--master=https://here:6443", *gates], "bayplan run")
    if release is not None:
        assert settings_of_any_release(flags).config.release.version == release.version
        return
    with pytest.raises(BayplanError) as caught:
        settings_of_any_release(flags)
    with pytest.raises(BayplanError, match=re.escape(str(caught.value))):
        make_settings(flags)


@pytest.mark.parametrize(
    ("flags", "is_on"),
    [
        ([], False),
        (["--min-compatibility-version=1.36"], False),
        (["--min-compatibility-version=1.37"], True),
        (["--min-compatibility-version=kube:v1.37"], True),
        (["--min-compatibility-version=1.37", f"--feature-gates={FRACTIONAL}=false"], False),
        ([f"--feature-gates={FRACTIONAL}=true"], True),
        (["--emulated-version=1.36", "--min-compatibility-version=1.36"], False),
    ],
)
def test_gates_that_depend_on_the_oldest_version_in_the_cluster(flags: list[str], is_on: bool) -> None:
    settings = make_settings(parse([*flags, "--master=https://here:6443"], "bayplan run"), V1_37)
    assert (FRACTIONAL in settings.config.release.gates) is is_on


@pytest.mark.parametrize("verbosity", ["-v=0", "-v=2"])
@pytest.mark.parametrize(("flags", "message"), UNCHECKED)
def test_flags_without_a_file_fail_where_they_are_used(
    flags: list[str], message: str, verbosity: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--master=http://127.0.0.1:1", "--secure-port=0", verbosity, *flags]) == 1
    assert capsys.readouterr().err.splitlines()[-1].endswith(f'] "command failed" err="{message}"')


def test_the_configuration_is_written_and_can_be_read_again(
    settings: Callable[..., Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    first = settings({**CONNECTED, "percentageOfNodesToScore": 42}, "--leader-elect-resource-name=mine")
    flags = ["--config=config.yaml", "--leader-elect-resource-name=mine", "--write-config-to=whole.yaml"]
    assert main(["run", *flags]) == 0
    written = yaml.safe_load(Path("whole.yaml").read_text())
    assert written == first.completed()
    assert written["leaderElection"]["resourceName"] == "mine"
    again = make_settings(parse(["--config=whole.yaml"], "bayplan run"))
    assert again.completed() == written
    assert 'Wrote configuration" file="whole.yaml"' in capsys.readouterr().err


def test_keys_of_extenders_are_not_logged(
    settings: Callable[..., Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    pair = authority("extender").issue("me")
    key = base64.b64encode(pair.key).decode()
    tls = {"keyData": key, "certData": base64.b64encode(pair.certificate).decode()}
    settings({**CONNECTED, "extenders": [{"urlPrefix": "https://x", "filterVerb": "f", "tlsConfig": tls}]})
    main(["run", "--config=config.yaml", "--write-config-to=whole.yaml", "-v=2"])
    log = capsys.readouterr().err
    assert "Using component config" in log
    assert key not in log
    assert key in Path("whole.yaml").read_text()


@pytest.mark.parametrize(
    ("gates", "warns"),
    [
        pytest.param("SchedulerAsyncPreemption=false", True, id="what is always on here"),
        pytest.param("SchedulerPopFromBackoffQ=false", False, id="what can be turned off"),
        pytest.param("SchedulerAsyncPreemption=true", False, id="what is on anyway"),
    ],
)
def test_a_gate_that_makes_no_difference_is_reported(
    settings: Callable[..., Settings], gates: str, warns: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    settings(CONNECTED)
    flags = ["--config=config.yaml", "--write-config-to=whole.yaml", f"--feature-gates={gates}"]
    assert main(["run", *flags]) == 0
    warning = 'feature gate off has no effect here" gate="SchedulerAsyncPreemption"'
    assert (warning in capsys.readouterr().err) == warns


def test_a_configuration_is_written_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new file is for its owner only: there may be keys in it. An existing one keeps its mode."""
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    )
    Path("shared.yaml").write_text("old")
    Path("shared.yaml").chmod(0o640)
    main(["run", "--master=http://x", "--config=config.yaml", "--write-config-to=new.yaml"])
    main(["run", "--master=http://x", "--config=config.yaml", "--write-config-to=shared.yaml"])
    assert Path("new.yaml").read_text() == Path("shared.yaml").read_text()
    modes = [Path(name).stat().st_mode & 0o777 for name in ("new.yaml", "shared.yaml")]
    assert modes == [0o600, 0o640]

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    before = Path("shared.yaml").read_text()
    monkeypatch.setattr("os.fsync", full)
    main(["run", "--master=http://x", "--config=config.yaml", "-v=2", "--write-config-to=shared.yaml"])
    assert Path("shared.yaml").read_text() == before


def test_a_configuration_may_go_to_standard_output(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bayplan.cli.main", "run", "--master=http://x"]
    done = subprocess.run(
        [*command, "--write-config-to=/dev/stdout"], capture_output=True, text=True, check=True
    )
    assert yaml.safe_load(done.stdout)["kind"] == "KubeSchedulerConfiguration"
