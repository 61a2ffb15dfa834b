"""Tries an installed Synapse as its user would: python try_installed.py CHECKOUT VERSION, in an empty home."""

from __future__ import annotations

import filecmp
import json
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import synapse

PROFILES = ("claude", "codex", "copilot", "dummy", "gemini", "opencode")


def run(*arguments: str) -> str:
    done = subprocess.run(["synapse", *arguments], capture_output=True, encoding="utf-8", check=False, timeout=120)
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


checkout, version = Path(sys.argv[1]), sys.argv[2]
package = Path(synapse.__file__).parent
require(not package.is_relative_to(checkout), f"{package} is the checkout")
listed = subprocess.run(["git", "ls-files", "synapse"], cwd=checkout, capture_output=True, encoding="utf-8", check=True)
files = [name for name in listed.stdout.splitlines() if (checkout / name).exists()]
_, different, missing = filecmp.cmpfiles(checkout, package.parent, files, shallow=False)
require(files and not different and not missing, f"the files of the package: {different} {missing}")

require(run("--version") == f"synapse {version}\n", "the version")
require("synapse start" in run("help", "start"), "the help")
require(all(profile in run("completion", "bash") for profile in PROFILES), "the profiles")
require("synapse" in run("guide"), "the guide")
run("demo")
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
