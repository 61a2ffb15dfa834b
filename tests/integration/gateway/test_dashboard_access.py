"""Who reaches the dashboard of a real gateway: its files are for everybody, all else is for signed-in browsers."""

from __future__ import annotations

import gzip
import json
import socket
import stat
import subprocess
from collections.abc import Iterator

import pytest

from tests.conformance.real_gateway import RunningGateway, gateway, new_key
from tests.conformance.real_hosts import COMMAND, PATIENCE, environ
from tests.conformance.wire_client import WireClient
from tests.integration.gateway.signed_in import SignedIn, new_code, open_session, origin_of, sign_in
from tests.integration.waiting import until
from tests.samples.ports import own_port

pytestmark = pytest.mark.integration

SESSION = "/dashboard/session"


@pytest.fixture(scope="module", params=["", "--no-auth"], ids=["with keys", "no-auth"])
def running(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[RunningGateway]:
    flags = [request.param] if request.param else []
    with gateway(tmp_path_factory.mktemp("d"), "grpc_port = 0", *flags) as started:
        yield started


@pytest.fixture(scope="module")
def browser(running: RunningGateway) -> SignedIn:
    return sign_in(running)


def raw_status(running: RunningGateway, target: bytes) -> int:
    """Returns the status for a target as no HTTP library would send it."""
    with socket.create_connection(("127.0.0.1", running.entry.port), timeout=PATIENCE) as connection:
        host = origin_of(running).removeprefix("http://").encode()
        connection.sendall(b"GET %b HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n" % (target, host))
        return int(connection.makefile("rb").readline().split()[1])


def test_everybody_of_this_machine_reads_the_page(running: RunningGateway) -> None:
    whole = running.ask("GET", "/", Accept_Encoding="identity")
    head = running.ask("HEAD", "/", Accept_Encoding="identity")
    packed = running.ask("GET", "/", Accept_Encoding="gzip")
    again = running.ask("GET", "/", If_None_Match=whole.headers["etag"])

    assert (whole.status, whole.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'; script-src 'self'" in whole.headers["content-security-policy"]
    assert whole.body.startswith(b"<!doctype html>")
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(len(whole.body)))
    assert (gzip.decompress(packed.body) if "content-encoding" in packed.headers else packed.body) == whole.body
    assert (again.status, again.body) == (304, b"")


def test_a_name_that_a_foreign_page_lets_point_here_gets_no_page(running: RunningGateway) -> None:
    assert running.ask("GET", "/", Host=f"evil.example:{running.entry.port}").code == "foreign_origin"


@pytest.mark.parametrize(
    "target",
    [
        b"/assets/../index.html",
        b"/assets/%2e%2e/pages.py",
        b"/assets/..%2f..%2fgateway%2fgateway.py",
        b"//assets/style.css",
        b"/assets//style.css",
        b"/assets/%00",
        b"/assets/index.html%00.js",
        b"/index.html",
        b"/assets/__init__.py",
    ],
)
def test_no_trick_with_a_path_reaches_another_file(running: RunningGateway, target: bytes) -> None:
    assert raw_status(running, target) in (400, 401, 404)


def test_a_link_signs_one_browser_in(running: RunningGateway) -> None:
    code = new_code(running)

    opened = open_session(running, code)
    again = open_session(running, code)

    assert opened.status == 200
    name, _, flags = opened.headers["set-cookie"].partition("=")
    assert name == f"synapse_session_{running.entry.port}"
    assert flags.partition(";")[2] == " Path=/dashboard; HttpOnly; SameSite=Strict; Max-Age=604800"
    assert (again.status, again.code) == (401, "credentials_refused")


def test_the_page_acts_with_both_secrets(browser: SignedIn) -> None:
    shown = browser.ask("GET", SESSION).json["session"]

    assert (shown["id"], shown["actions"]) == (browser.session["id"], browser.session["actions"])


@pytest.mark.parametrize(
    ("changed", "status", "code"),
    [
        ({"Cookie": ""}, 401, "credentials_refused"),
        ({"X_Synapse_Token": ""}, 401, "credentials_refused"),
        ({"X_Synapse_Token": "0" * 64}, 401, "credentials_refused"),
        ({"Origin": "http://evil.example"}, 403, "foreign_origin"),
        ({"Origin": "http://127.0.0.1:1"}, 403, "foreign_origin"),
        ({"Host": "evil.example"}, 403, "foreign_origin"),
        ({"Sec_Fetch_Site": "cross-site"}, 403, "foreign_origin"),
        ({"Sec_Fetch_Site": "same-site"}, 403, "foreign_origin"),
    ],
    ids=str,
)
def test_nothing_less_and_no_other_page_will_do(
    browser: SignedIn, changed: dict[str, str], status: int, code: str
) -> None:
    for method in ("GET", "DELETE"):
        reply = browser.ask(method, SESSION, **changed)
        assert (reply.status, reply.code) == (status, code)
        assert browser.token not in reply.body.decode()
    assert browser.ask("GET", SESSION).status == 200


def test_a_request_that_changes_something_needs_an_origin(browser: SignedIn) -> None:
    assert browser.ask("DELETE", SESSION, Origin="").code == "foreign_origin"
    assert open_session(browser.gateway, new_code(browser.gateway), Origin="null").code == "foreign_origin"


def test_nobody_gets_a_link_over_the_network(browser: SignedIn) -> None:
    running = browser.gateway
    key = new_key(running.home, f"operator-{running.entry.port}", "--actions", "all", "--all-tasks")

    assert running.ask("POST", "/dashboard/links", {}, key=key).code == "person_required"
    assert running.ask("POST", "/dashboard/links", {}).code in ("credentials_refused", "person_required")
    assert browser.ask("POST", "/dashboard/links", {}).code == "person_required"


def test_errors_below_the_dashboard_have_one_shape(browser: SignedIn) -> None:
    for reply in (browser.ask("GET", "/dashboard/none"), browser.gateway.ask("GET", "/dashboard/none", Host="x")):
        assert set(reply.json["error"]) == {"code", "message", "hint"}


def test_guesses_are_limited_and_a_link_still_works(running: RunningGateway) -> None:
    code = new_code(running)

    codes = [open_session(running, f"guess-{number}").code for number in range(32)]

    assert codes[0] == "credentials_refused"
    assert codes[-1] == "rate_limited"
    assert open_session(running, code).status == 200


def synapse(running: RunningGateway, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "dashboard", *arguments],
        env=environ(running.home),
        cwd=running.home,
        check=True,
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE,
    )


def test_sessions_are_listed_and_revoked(running: RunningGateway) -> None:
    browser = sign_in(running, "read")
    session_id = browser.session["id"]
    assert browser.ask("GET", SESSION).status == 200

    listed = {one["id"]: one for one in json.loads(synapse(running, "sessions", "--json").stdout)}
    revoked = synapse(running, "revoke", session_id, "--json")

    assert listed[session_id]["actions"] == ["read"]
    assert json.loads(revoked.stdout) == [session_id]
    assert browser.ask("GET", SESSION).code == "credentials_refused"
    assert session_id not in synapse(running, "sessions").stdout


def test_the_command_prints_a_link_that_works(running: RunningGateway) -> None:
    port = str(running.entry.port)
    printed = json.loads(synapse(running, "--json", "--read-only", "--port", port).stdout)

    opened = open_session(running, printed["url"].partition("#code=")[2])

    assert opened.json["session"]["actions"] == ["read"]
    assert printed["gateway"] == running.entry.agent_id


def test_a_page_signs_itself_out(running: RunningGateway) -> None:
    browser = sign_in(running)

    ended = browser.ask("DELETE", SESSION)

    assert ended.status == 200
    assert "Max-Age=0" in ended.headers["set-cookie"]
    assert browser.ask("GET", SESSION).code == "credentials_refused"


def test_what_is_stored_is_private_and_has_no_secret(browser: SignedIn) -> None:
    path = browser.gateway.home / "sessions.json"
    used = browser.gateway.home / "sessions-used"
    assert browser.ask("GET", SESSION).status == 200
    until(used.is_dir, "its use is written down")

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(used.stat().st_mode) == 0o700
    stored = path.read_text(encoding="utf-8")
    assert browser.token not in stored
    assert browser.cookie.partition(".")[2] not in stored


def test_sessions_survive_a_restart_of_the_gateway(tmp_path_factory: pytest.TempPathFactory) -> None:
    home = tmp_path_factory.mktemp("r")
    with gateway(home, "grpc_port = 0") as first:
        before = sign_in(first)
        port = str(first.entry.port)
    with gateway(home, "grpc_port = 0", "--port", port) as second:
        after = SignedIn(second, before.cookie, before.token, before.session)

        assert after.ask("GET", SESSION).status == 200


def test_the_unix_socket_serves_the_same_paths(running: RunningGateway) -> None:
    local = WireClient(running.entry.port, running.entry.socket)

    assert local.request("GET", SESSION).code == "unauthenticated"
    assert local.request("GET", "/").status == 200


def test_the_command_starts_a_gateway_and_opens_the_browser(tmp_path_factory: pytest.TempPathFactory) -> None:
    home = tmp_path_factory.mktemp("o")
    (home / "gateway.toml").write_text(f"port = {own_port()}\ngrpc_port = 0\n", encoding="utf-8")
    browser, opened = home / "browser", home / "opened"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {opened}.part && mv {opened}.part {opened}\n', encoding="utf-8")
    browser.chmod(0o755)
    ours = environ(home) | {"BROWSER": f"{browser} %s", "DISPLAY": ":0"}

    def synapse(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *arguments], env=ours, cwd=home, capture_output=True, encoding="utf-8", timeout=30, check=True
        )

    try:
        ran = synapse("dashboard")
        url = until(lambda: opened.read_text(encoding="utf-8") if opened.is_file() else "", "the browser")
        again = synapse("dashboard", "--no-open")
    finally:
        stopped = synapse("stop", "gateway")

    assert "#code=" in url
    # Neither the terminal nor its scrollback keeps what opens the page.
    assert "code" not in ran.stdout + ran.stderr
    assert "Gateway listening on" in ran.stderr
    assert "Gateway listening on" not in again.stderr
    assert again.stdout.startswith(url.partition("#")[0])
    assert "stopped" in stopped.stderr
