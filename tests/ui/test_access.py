"""Who may see the page: the link works once, logins expire, and other sites are rejected."""

from __future__ import annotations

import pytest

from bayplan.ui.access import MAX_SESSIONS, POLICY, Access


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def cookie(text: str | None) -> dict[str, str]:
    assert text is not None
    return {"Cookie": text.partition(";")[0]}


def make(secure: bool = False) -> tuple[Access, Clock]:
    clock = Clock()
    access = Access(secure=secure, lifetime=60, clock=clock)
    access.listen(8080, "page.example.com")
    return access, clock


def test_a_link_works_once_and_the_login_expires() -> None:
    access, clock = make()
    used: list[str] = []
    access.on_login = lambda: used.append(access.token)
    token = access.token
    given = access.log_in(token)
    assert given is not None
    assert "HttpOnly" in given
    assert "SameSite=Strict" in given
    assert "Secure" not in given
    assert "Path=/ui/" in given
    assert access.is_logged_in(cookie(given))
    assert access.log_in(token) is None
    assert used == [access.token]
    clock.now += 61
    assert not access.is_logged_in(cookie(given))


def test_logging_out_ends_a_login_on_the_server() -> None:
    access, _ = make()
    given = cookie(access.log_in(access.token))
    assert "Max-Age=0" in access.log_out(given)
    assert not access.is_logged_in(given)
    assert "Max-Age=0" in access.log_out({})


@pytest.mark.parametrize("header", ["", "bayplan-8080=", "bayplan-8080=guess", "other=1", '"\x00=;;'])
def test_a_login_needs_its_cookie(header: str) -> None:
    access, _ = make()
    access.log_in(access.token)
    assert not access.is_logged_in({"Cookie": header})
    assert access.log_in("") is None
    assert access.log_in("ü") is None


def test_the_number_of_logins_is_limited() -> None:
    access, _ = make()
    first = cookie(access.log_in(access.token))
    for _ in range(MAX_SESSIONS):
        access.log_in(access.token)
    assert not access.is_logged_in(first)


LOCAL = {"Host": "127.0.0.1:8080"}
ORIGIN = {"Origin": "http://127.0.0.1:8080"}


@pytest.mark.parametrize(
    ("method", "headers", "accepted"),
    [
        pytest.param("GET", LOCAL, True, id="the address"),
        pytest.param("GET", {"Host": "localhost:8080"}, True, id="localhost"),
        pytest.param("GET", {"Host": "[::1]:8080"}, True, id="IPv6"),
        pytest.param("GET", {"Host": "page.example.com:8080"}, True, id="a name that was given"),
        pytest.param(
            "GET", {"Host": "evil.example.com:8080"}, False, id="a name that points at this machine"
        ),
        pytest.param("GET", {"Host": "127.0.0.1:9999"}, False, id="another port"),
        pytest.param("GET", {}, False, id="no host"),
        pytest.param("POST", LOCAL | ORIGIN, True, id="a request of the page"),
        pytest.param("POST", LOCAL, False, id="a request that is not a GET needs an origin"),
        pytest.param("POST", LOCAL | {"Origin": "https://evil.example.com"}, False, id="another site"),
        pytest.param("POST", LOCAL | {"Origin": "null"}, False, id="a sandboxed page"),
        pytest.param("POST", LOCAL | {"Origin": "https://127.0.0.1:8080"}, False, id="another scheme"),
        pytest.param(
            "GET", LOCAL | {"Sec-Fetch-Site": "cross-site"}, False, id="a subresource of another site"
        ),
        pytest.param(
            "GET",
            LOCAL | {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
            True,
            id="a link on another site may lead here",
        ),
        pytest.param(
            "GET", LOCAL | {"Sec-Fetch-Site": "same-site"}, False, id="another port of this machine"
        ),
    ],
)
def test_requests_of_other_sites_are_rejected(method: str, headers: dict[str, str], accepted: bool) -> None:
    access, _ = make()
    assert (access.origin_problem(headers, method) == "") is accepted


@pytest.mark.parametrize(("secure", "port", "host"), [(True, 443, "a.example.com"), (False, 80, "[fd00::1]")])
def test_browsers_leave_the_default_port_out(secure: bool, port: int, host: str) -> None:
    access = Access(secure=secure)
    access.listen(port, "A.example.com", "fd00::1")
    headers = {"Host": host, "Origin": f"{'https' if secure else 'http'}://{host}"}
    assert access.origin_problem(headers, "POST") == ""


def test_over_tls_cookies_are_secure() -> None:
    access, _ = make(secure=True)
    given = access.log_in(access.token)
    assert given is not None
    assert given.endswith("Secure")
    assert access.origin_problem(LOCAL | {"Origin": "https://127.0.0.1:8080"}, "POST") == ""


def test_the_policy_allows_nothing_inline_and_nothing_from_elsewhere() -> None:
    policy = POLICY["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "frame-ancestors 'none'" in policy
