"""Tries an installed Synapse as its user would: python try_installed.py CHECKOUT VERSION WHAT, in a home for trials.

WHAT is `plain`, or `fleet-server` where that extra is installed as well.
"""

from __future__ import annotations

import errno
import filecmp
import json
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import synapse

PROFILES = ("claude", "codex", "copilot", "dummy", "gemini", "opencode")
EXTRA = "fleet-server"
NOT_FOUND, NOT_RESPONDING = 3, 8


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["synapse", *arguments], capture_output=True, encoding="utf-8", check=False, timeout=120)


def run(*arguments: str) -> str:
    done = call(*arguments)
    if done.returncode:
        sys.exit(f"synapse {' '.join(arguments)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def free_ports() -> list[str]:
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    ports = [str(one.getsockname()[1]) for one in taken]
    for one in taken:
        one.close()
    return ports


def require(fact: object, what: str) -> None:
    if not fact:
        sys.exit(f"not as it should be: {what}")


def try_package(checkout: Path, version: str) -> None:
    package = Path(synapse.__file__).parent
    require(not package.is_relative_to(checkout), f"{package} is the checkout")
    listed = subprocess.run(
        ["git", "ls-files", "synapse"], cwd=checkout, capture_output=True, encoding="utf-8", check=True
    )
    files = [name for name in listed.stdout.splitlines() if (checkout / name).exists()]
    _, different, missing = filecmp.cmpfiles(checkout, package.parent, files, shallow=False)
    require(files and not different and not missing, f"the files of the package: {different} {missing}")

    require(run("--version") == f"synapse {version}\n", "the version")
    require("synapse start" in run("help", "start"), "the help")
    require(all(profile in run("completion", "bash") for profile in PROFILES), "the profiles")
    require("synapse" in run("guide"), "the guide")
    run("demo")


def try_gateway(version: str) -> None:
    port, grpc_port = free_ports()
    gateway = json.loads(run("start", "gateway", "--port", port, "--grpc-port", grpc_port, "--no-auth", "--json"))
    try:
        require(gateway["version"] == version, "the version of the gateway")
        for path, text in (("/", "<title>"), ("/assets/app.js", "import"), ("/openapi.json", f'"{version}"')):
            with urllib.request.urlopen(f"http://localhost:{port}{path}", timeout=20) as page:
                require(text in page.read().decode(), path)
        require(f"localhost:{port}" in run("list", "--json"), "the gateway in the list")
    finally:
        run("stop", "gateway")


def try_fleet_without_its_extra() -> None:
    refused = call("fleet", "create", "--name", "box1")
    named = f"pip install 'synapse-a2a[{EXTRA}]'" in refused.stderr.splitlines()
    require(refused.returncode == NOT_FOUND and named, f"the missing extra: {refused.returncode} {refused.stderr}")


def try_fleet(version: str) -> None:
    port = int(free_ports()[0])
    listen = f"127.0.0.1:{port}"
    created = json.loads(run("fleet", "create", "--name", "box1", "--listen", listen, "--json"))
    try:
        require(created["addresses"] == [f"nats://{listen}"], f"the addresses of the server: {created}")
        examined = json.loads(run("fleet", "doctor", "--json"))
        require(examined["ok"], f"the fleet's doctor: {examined['findings']}")
        status = json.loads(run("fleet", "status", "--json"))
        require(status["connected"] and status["version"] == version, f"the link: {status}")
    finally:
        stopped = json.loads(run("fleet", "stop", "--json"))
    require(stopped["stopped"], "`fleet stop` found no link")
    require(call("fleet", "status").returncode == NOT_RESPONDING, "the link runs on after `fleet stop`")
    with socket.socket() as probe:
        require(probe.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED, "the server runs on after `fleet stop`")


def main(checkout: str, version: str, what: str) -> None:
    if what == EXTRA:
        try_fleet(version)
        return
    try_package(Path(checkout), version)
    try_fleet_without_its_extra()
    try_gateway(version)


main(*sys.argv[1:])
