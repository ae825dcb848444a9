"""`bayplan up` as a user has it: a process, its output, and a client beside it."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import re
import resource
import select
import signal
import socket
import ssl
import stat
import struct
import subprocess
import sys
import termios
import time
import urllib.request
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
import yaml

from bayplan.cli.up import _annotate
from bayplan.errors import InputError
from bayplan.simulate.memory.store import MemoryStore
from bayplan.testing.builders import make_node
from tests.client.http.api_server import ApiServer, serving

ROOT = Path(__file__).parents[2]
TOUR = [str(path) for path in sorted((ROOT / "examples" / "tour").glob("*.yaml"))]
STYLE = re.compile(r"\x1b\[[0-9;]*m")
COSCHEDULING = "bayplan.plugins.library.coscheduling:Coscheduling"


def _up(tmp_path: Path, *arguments: str) -> list[str]:
    kubeconfig = str(tmp_path / "kubeconfig")
    return [sys.executable, "-m", "bayplan.cli.main", "up", "--kubeconfig", kubeconfig, *arguments]


def _ended(tmp_path: Path, *arguments: str) -> str:
    done = subprocess.run(
        _up(tmp_path, *arguments, "--exit-when-idle", "always"),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
        check=False,
    )
    assert done.stderr == ""
    assert done.returncode == 0
    return done.stdout


def test_the_tour(tmp_path: Path) -> None:
    files = [argument for file in TOUR for argument in ("-f", file)]
    devices = str(ROOT / "examples" / "gpus.yaml")
    output = _ended(tmp_path, "--nodes", "12", "--plugin", COSCHEDULING, "--devices", devices, *files)
    lines = output.splitlines()
    assert lines[0].startswith("● embedded control plane on https://127.0.0.1:")
    # All four of the group, the web servers, their caches, two with GPUs, the batch work but one, and the
    # important pod.
    assert lines[-1] == "● 12 nodes · pods: 23 running, 2 pending"
    words = [line.split(maxsplit=4) for line in lines if line[2:3] == ":"]
    bound = [pod for _, state, pod, *_ in words if state == "bound"]
    # Each once, though the gang was held at Permit until it was complete; the victim, too.
    assert len(set(bound)) == len(bound) == 24
    assert sum(pod.startswith("ml/finetune-") for pod in bound) == 2
    assert sum(pod.startswith("ml/train-") for pod in bound) == 4
    held = {pod: reason for _, state, pod, _, reason in words if state == "waiting"}
    assert len(held) == 3
    assert set(held.values()) == {"held by Coscheduling"}
    unschedulable = {pod: reason for _, state, pod, _, reason in words if state == "unschedulable"}
    assert unschedulable["shop/payments"].startswith("preempting ml/batch-")
    assert unschedulable["ml/huge"].startswith("0/12 nodes are available: 12 Insufficient cpu. ")
    assert lines[-4] == "Unschedulable: 2 pods"


class Client:
    """What a kubeconfig gives access to."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        self.server = cluster["server"]
        self._token = config["users"][0]["user"]["token"]
        ca = b64decode(cluster["certificate-authority-data"]).decode()
        self._context = ssl.create_default_context(cadata=ca)

    def get(self, path: str) -> Any:
        headers = {"Authorization": f"Bearer {self._token}"}
        request = urllib.request.Request(self.server + path, headers=headers)
        with urllib.request.urlopen(request, context=self._context, timeout=10) as answer:
            return json.load(answer)


def test_it_stays_up_for_clients_until_it_is_stopped(tmp_path: Path) -> None:
    process = subprocess.Popen(
        _up(tmp_path, "--nodes", "2"), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("● embedded control plane on ")
        # At once, and not after it has been stopped.
        assert process.stdout.readline().startswith("Page: http://127.0.0.1:")
        assert process.stdout.readline().startswith("Try:  kubectl --kubeconfig ")
        pasted = subprocess.run(process.stdout.readline(), shell=True, capture_output=True, text=True)
        assert (pasted.returncode, pasted.stderr) == (0, "")
        assert any(line.startswith("n01 ") for line in pasted.stdout.splitlines()), pasted.stdout
        kubeconfig = tmp_path / "kubeconfig"
        assert stat.S_IMODE(kubeconfig.stat().st_mode) == 0o600
        nodes = Client(kubeconfig).get("/api/v1/nodes")["items"]
        assert [node["metadata"]["name"] for node in nodes] == ["n01", "n02"]
    finally:
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "● 2 nodes · pods: none" in rest


def test_it_ends_silently_when_the_reader_of_its_output_does(tmp_path: Path) -> None:
    """`bayplan up … | head -2`"""
    with subprocess.Popen(
        _up(tmp_path, "-f", TOUR[0], "-f", TOUR[2]),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=60) == 141


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_any_encoding_will_do(tmp_path: Path, encoding: str) -> None:
    done = subprocess.run(
        _up(tmp_path, "-f", TOUR[0], "-f", TOUR[2], "--exit-when-idle", "always"),
        capture_output=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode(encoding).startswith("* embedded control plane on ")


def test_on_a_terminal_it_shows_a_page_that_follows_its_size(tmp_path: Path) -> None:
    user, program = pty.openpty()
    fcntl.ioctl(user, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        _up(tmp_path, "-f", TOUR[0], "-f", TOUR[2]),
        stdin=program,
        stdout=program,
        stderr=program,
        env={**os.environ, "TERM": "xterm-256color", "NO_COLOR": "1"},
    )
    os.close(program)
    try:
        assert "\x1b[?1049h" in _read_until(user, "Unschedulable: 1 pod")
        fcntl.ioctl(user, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
        process.send_signal(signal.SIGWINCH)
        _read_until(user, "\x1b[2J\x1b[H● embedded control plane on ")
    finally:
        process.send_signal(signal.SIGINT)
        rest = _read_until(user, "● 3 nodes · pods: 1 running, 1 pending")
        process.wait(timeout=30)
        os.close(user)
    assert process.returncode == 0
    assert "\x1b[?1049l" in rest
    # Left on the terminal, whole and on one line.
    assert re.search(
        r"ml/huge +0/3 nodes are available: .* Preemption is not helpful for scheduling\.\r\n", rest
    )


def _read_until(terminal: int, text: str) -> str:
    seen = ""
    deadline = time.monotonic() + 60
    while text not in seen:
        ready, _, _ = select.select([terminal], [], [], max(deadline - time.monotonic(), 0))
        assert ready, seen
        seen += STYLE.sub("", os.read(terminal, 65536).decode())
    return seen


def test_what_is_kept_is_there_again(tmp_path: Path) -> None:
    kept = ["--data-dir", str(tmp_path / "data"), "--nodes", "2"]
    pod = tmp_path / "pod.yaml"
    pod.write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c, image: web}]}\n"
    )
    assert "● 2 nodes · pods: 1 running" in _ended(tmp_path, *kept, "-f", str(pod))
    again = _ended(tmp_path, *kept)
    assert "default/web" not in again
    assert "● 2 nodes · pods: 1 running" in again


def test_without_a_scheduler_pods_wait(tmp_path: Path) -> None:
    output = _ended(tmp_path, "--no-scheduler", "-f", TOUR[0], "-f", TOUR[2])
    assert output.splitlines()[-1] == "● 3 nodes · pods: 2 pending"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(("-f", "nowhere.yaml"), "nowhere.yaml", id="a file that is not there"),
        pytest.param(("--plugin", "nowhere:Plugin"), "nowhere", id="a plugin that is not there"),
    ],
)
def test_what_cannot_be_done_is_reported_in_one_line(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    _fails(tmp_path, *arguments, message=message)


def test_a_port_that_is_taken_is_reported(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        _fails(tmp_path, "--port", str(port), message=f"cannot listen on port {port}: ")


def _fails(tmp_path: Path, *arguments: str, message: str) -> None:
    done = subprocess.run(
        _up(tmp_path, *arguments), capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_disk_that_takes_no_more_ends_it(tmp_path: Path) -> None:
    """Better no cluster than one that loses its data."""

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))

    done = subprocess.run(
        _up(tmp_path, "--data-dir", str(tmp_path / "data"), "--nodes", "2000"),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        preexec_fn=small_files,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert "error: " in done.stderr
    assert str(tmp_path / "data") in done.stderr


@pytest.mark.parametrize("command", ["down", "up"])
def test_only_simulated_nodes_can_be_taken_down(command: str) -> None:
    """On another cluster the annotation would have no effect, so it is not written."""

    async def main() -> None:
        store = MemoryStore()
        store.create(make_node("n1"))
        async with serving(ApiServer(store)) as server:
            with pytest.raises(InputError, match="is not a cluster of `bayplan up`"):
                await _annotate(server.access, ("n1",), "true" if command == "down" else None)
            assert server.of("PATCH") == []

    asyncio.run(main())
