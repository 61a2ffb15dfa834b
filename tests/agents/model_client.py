"""A small CLI that asks a model: `MODEL_URL` speaks Chat Completions. It has a prompt, and Ctrl-C ends an answer.

Before it runs a command it asks a person, and the model may ask the person too. It paints Markdown: brackets vanish, as
they do in some real ones.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from http.client import HTTPConnection, HTTPResponse
from typing import Any

Json = dict[str, Any]


def tool(name: str, *parameters: str) -> Json:
    schema = {"type": "object", "properties": {parameter: {"type": "string"} for parameter in parameters}}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


TOOLS = [tool("bash", "command"), tool("ask_user", "question", "choices")]


def main() -> None:
    while True:
        try:
            line = input("ask> ")
        except EOFError:
            return
        except KeyboardInterrupt:
            continue
        try:
            take_turn([{"role": "user", "content": line}])
        except KeyboardInterrupt:
            say("interrupted\n")


def take_turn(messages: list[Json]) -> None:
    """Ask the model until it calls no tool any more."""
    while (call := ask(messages)) is not None:
        messages += [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": use(call["function"])}]


def ask(messages: list[Json]) -> Json | None:
    connection = HTTPConnection(os.environ["MODEL_URL"].removeprefix("http://"), timeout=60)
    body = {"model": "scripted", "stream": True, "messages": messages, "tools": TOOLS}
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        answer = connection.getresponse()
        if answer.status == 200:
            return show(answer)
        say(f"error {answer.status}\n")
    finally:
        connection.close()
    return None


def show(answer: HTTPResponse) -> Json | None:
    """Print what the model says; return the tool that it calls instead, if it does."""
    for line in answer:
        data = line.decode().removeprefix("data: ").strip()
        if not data or data == "[DONE]":
            continue
        delta: Json = json.loads(data)["choices"][0]["delta"]
        if "tool_calls" in delta:
            called: Json = delta["tool_calls"][0]
            return called
        say((delta.get("content") or "").replace("[", "").replace("]", ""))
    say("\n")
    return None


def use(function: Json) -> str:
    given: Json = json.loads(function["arguments"])
    if function["name"] == "ask_user":
        choices: list[str] = given["choices"]
        return choices[int(choose(given["question"], choices)) - 1]
    if choose(f"Allow this? {given['command']}", ["Yes", "No"]) != "1":
        return "the person said no"
    subprocess.run(given["command"], shell=True, check=True)
    return "it ran"


def choose(question: str, choices: list[str]) -> str:
    """Open a dialog, and wipe it away again once it is answered."""
    rows = ["== asks", question, *(f"  {number}. {choice}" for number, choice in enumerate(choices, 1))]
    say("\n".join(rows) + "\n")
    chosen = input("number: ")
    say(f"\x1b[{len(rows) + 1}A\x1b[J")
    return chosen


def say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
