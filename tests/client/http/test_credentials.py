"""Credentials change while the client runs: files are read again, programs are run again."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from bayplan.client.access import Access, ExecPlugin
from bayplan.client.credentials import Credentials
from bayplan.errors import APIError
from bayplan.net.tls import ClientTLS, TLSSettings

from .certificates import authority

T = TypeVar("T")
V1 = "client.authentication.k8s.io/v1"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def made(access: Access, clock: Clock | None = None, tls: ClientTLS | None = None) -> Credentials:
    return Credentials(access, tls or ClientTLS(TLSSettings(insecure=True)), now=clock or Clock())


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


async def token(credentials: Credentials) -> str:
    return dict((await credentials.identity()).pairs).get("Authorization", "")


@pytest.mark.parametrize(
    ("access", "expected"),
    [
        pytest.param(Access("https://k"), (), id="anonymous"),
        pytest.param(Access("https://k", token="t"), (("Authorization", "Bearer t"),), id="a token"),
        pytest.param(
            Access("https://k", username="a", password="b"),
            (("Authorization", "Basic YTpi"),),
            id="a password",
        ),
        pytest.param(
            Access("https://k", token="t", impersonate=(("Impersonate-User", "j"),)),
            (("Authorization", "Bearer t"), ("Impersonate-User", "j")),
            id="impersonation",
        ),
        pytest.param(
            Access("https://k", token="t", exec_plugin=ExecPlugin("/nowhere", V1)),
            (("Authorization", "Bearer t"),),
            id="a token makes a program superfluous",
        ),
    ],
)
def test_the_credentials_that_are_sent(access: Access, expected: tuple[tuple[str, str], ...]) -> None:
    identity = run(made(access).identity())
    assert identity.pairs == expected
    assert identity.block == b"".join(f"{name}: {value}\r\n".encode() for name, value in expected)


def test_over_plain_http_no_credentials_are_sent(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("t")
    for access in (
        Access("http://k", token="t"),
        Access("http://k", token_file=str(tmp_path / "t")),
        Access("http://k", username="me"),
        Access("http://k", exec_plugin=ExecPlugin("/nowhere", V1)),
    ):
        assert run(Credentials(access, None, now=Clock()).identity()).pairs == ()


def test_a_line_break_does_not_get_into_a_header() -> None:
    with pytest.raises(APIError, match="line break"):
        made(Access("https://k", token="a\r\nX-Evil: yes"))


# Token files


def test_a_token_file_is_read_again_after_a_while(tmp_path: Path) -> None:
    path, clock = tmp_path / "token", Clock()
    path.write_text("one\n")

    async def main() -> list[str]:
        credentials = made(Access("https://k", token_file=str(path)), clock)
        seen = [await token(credentials)]
        path.write_text("two\n")
        for now in (1049.0, 1050.0):
            clock.now = now
            seen.append(await token(credentials))
        return seen

    assert run(main()) == ["Bearer one", "Bearer one", "Bearer two"]


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(Path.unlink, id="gone"),
        pytest.param(lambda path: path.write_text("\n"), id="empty"),
        pytest.param(lambda path: path.write_bytes(b"\xff"), id="no text"),
    ],
)
def test_a_token_is_kept_while_its_file_is_unusable(tmp_path: Path, spoil: Any) -> None:
    path, clock = tmp_path / "token", Clock()
    path.write_text("one")

    async def main() -> str:
        credentials = made(Access("https://k", token_file=str(path)), clock)
        await token(credentials)
        spoil(path)
        clock.now += 100
        return await token(credentials)

    assert run(main()) == "Bearer one"


def test_a_file_beats_a_token_unless_it_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "token"
    access = Access("https://k", token="given", token_file=str(path))
    assert run(token(made(access))) == "Bearer given"
    path.write_text("read")
    assert run(token(made(access))) == "Bearer read"


def test_a_missing_token_is_reported() -> None:
    with pytest.raises(APIError, match='failed to read token file "/nowhere/t"'):
        run(token(made(Access("https://k", token_file="/nowhere/t"))))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param("two", (True, "Bearer two"), id="there is another"),
        pytest.param("one", (False, "Bearer one"), id="it is the same still"),
    ],
)
def test_a_rejected_token_is_read_again_at_once(
    tmp_path: Path, content: str, expected: tuple[bool, str]
) -> None:
    path = tmp_path / "token"
    path.write_text("one")

    async def main() -> tuple[bool, str]:
        credentials = made(Access("https://k", token_file=str(path)))
        identity = await credentials.identity()
        path.write_text(content)
        return await credentials.renew_after_401(identity), await token(credentials)

    assert run(main()) == expected


def test_a_token_that_never_changes_is_not_worth_another_try() -> None:
    async def main() -> bool:
        credentials = made(Access("https://k", token="t"))
        return await credentials.renew_after_401(await credentials.identity())

    assert run(main()) is False


# Programs


def plugin(folder: Path, answer: Any, *, code: int = 0, **fields: Any) -> ExecPlugin:
    """A program that records each call with its input, and prints the answer."""
    script = folder / "plugin.py"
    text = answer if isinstance(answer, str) else json.dumps({"kind": "ExecCredential", **answer})
    script.write_text(
        "import os\n"
        f"open({str(folder / 'calls')!r}, 'a').write(os.environ['KUBERNETES_EXEC_INFO'] + '\\n')\n"
        f"print({text!r}.replace('$USER_NAME', os.environ.get('USER_NAME', '')))\n"
        f"raise SystemExit({code})\n"
    )
    return ExecPlugin(sys.executable, V1, (str(script),), **fields)


def calls(folder: Path) -> list[Any]:
    return [json.loads(line) for line in (folder / "calls").read_text().splitlines()]


def test_a_program_runs_once_and_gets_what_it_needs(tmp_path: Path) -> None:
    exec_plugin = plugin(
        tmp_path,
        {"apiVersion": V1, "status": {"token": "$USER_NAME"}},
        env=(("USER_NAME", "me"),),
        cluster={"server": "https://k"},
    )

    async def main() -> set[str]:
        credentials = made(Access("https://k", exec_plugin=exec_plugin))
        seen = await asyncio.gather(*(token(credentials) for _ in range(3)))
        return {*seen, await token(credentials)}

    assert run(main()) == {"Bearer me"}
    spec = {"interactive": False, "cluster": {"server": "https://k"}}
    assert calls(tmp_path) == [{"kind": "ExecCredential", "apiVersion": V1, "spec": spec}]


def test_a_program_runs_again_when_its_credentials_expire(tmp_path: Path) -> None:
    status = {"token": "t", "expirationTimestamp": "1970-01-01T00:20:00Z"}
    exec_plugin, clock = plugin(tmp_path, {"apiVersion": V1, "status": status}), Clock()

    async def main() -> list[int]:
        credentials, counts = made(Access("https://k", exec_plugin=exec_plugin), clock), []
        for now in (1000.0, 1199.0, 1200.0):
            clock.now = now
            await token(credentials)
            counts.append(len(calls(tmp_path)))
        return counts

    assert run(main()) == [1, 1, 2]


def test_a_program_runs_again_when_its_credentials_are_rejected(tmp_path: Path) -> None:
    exec_plugin = plugin(tmp_path, {"apiVersion": V1, "status": {"token": "t"}})

    async def main() -> tuple[bool, bool]:
        credentials = made(Access("https://k", exec_plugin=exec_plugin))
        old = await credentials.identity()
        first = await credentials.renew_after_401(old)
        return first, await credentials.renew_after_401(old)

    assert run(main()) == (True, True)
    assert len(calls(tmp_path)) == 2, "a late request with the old one does not run it again"


def test_a_program_may_give_a_certificate(tmp_path: Path) -> None:
    pair = authority("users").issue("jane")
    status = {"clientCertificateData": pair.certificate.decode(), "clientKeyData": pair.key.decode()}
    exec_plugin = plugin(tmp_path, {"apiVersion": V1, "status": status})
    tls, shown = ClientTLS(TLSSettings(insecure=True)), []

    async def main() -> None:
        before = tls.context()
        credentials = Credentials(
            Access("https://k", exec_plugin=exec_plugin),
            tls,
            now=Clock(),
            certificate_changed=lambda: shown.append(1),
        )
        assert await token(credentials) == ""
        assert tls.context() is not before

    run(main())
    assert shown == [1]


@pytest.mark.parametrize(
    ("answer", "fields", "problem"),
    [
        pytest.param(
            {"apiVersion": "v7", "status": {"token": "t"}},
            {},
            f"exec plugin is configured to use API version {V1}, plugin returned version v7",
            id="of another time",
        ),
        pytest.param({"apiVersion": V1}, {}, "exec plugin didn't return a status field", id="no status"),
        pytest.param(
            {"apiVersion": V1, "status": {}},
            {},
            "exec plugin didn't return a token or cert/key pair",
            id="nothing in it",
        ),
        pytest.param(
            {"apiVersion": V1, "status": {"clientKeyData": "k"}},
            {},
            "exec plugin returned only certificate or key, not both",
            id="half a pair",
        ),
        pytest.param("hello", {}, "decoding stdout", id="no JSON"),
        pytest.param("", {"code": 3}, "failed with exit code 3", id="it fails"),
        pytest.param(
            "",
            {"needs_terminal": True},
            "exec plugin cannot support interactive mode: standard input is not a terminal",
            id="it requires an interactive session",
        ),
    ],
)
def test_a_program_that_gives_nothing(
    tmp_path: Path, answer: Any, fields: dict[str, Any], problem: str
) -> None:
    access = Access("https://k", exec_plugin=plugin(tmp_path, answer, **fields))
    with pytest.raises(APIError) as error:
        run(token(made(access)))
    assert str(error.value).startswith("getting credentials: ")
    assert problem in str(error.value)


def test_a_program_that_is_not_there() -> None:
    missing = ExecPlugin("no-such-program", V1, install_hint="install it with care")
    with pytest.raises(APIError) as error:
        run(token(made(Access("https://k", exec_plugin=missing))))
    assert str(error.value) == (
        "getting credentials: exec: executable no-such-program not found\n\ninstall it with care"
    )


def test_a_program_that_may_not_be_run(tmp_path: Path) -> None:
    path = tmp_path / "plugin"
    path.write_text("")
    os.chmod(path, 0o600)
    with pytest.raises(APIError, match="permission denied"):
        run(token(made(Access("https://k", exec_plugin=ExecPlugin(str(path), V1)))))
