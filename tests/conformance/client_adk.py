"""A conversation by a framework that uses A2A agents as its own: google-adk's RemoteA2aAgent, in an environment of its
own.

    python client_adk.py URL TEXT…

It prints the last text that came back for each TEXT, all in one session, as JSON. The framework is loaded by name,
because it is not installed here.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from typing import Any

adk: Any = importlib.import_module("google.adk.agents.remote_a2a_agent")
runners: Any = importlib.import_module("google.adk.runners")
genai: Any = importlib.import_module("google.genai.types")

PATIENCE = 60.0
APP, USER = "synapse", "person"


async def answer(runner: Any, session: Any, text: str) -> str:
    said = genai.Content(role="user", parts=[genai.Part(text=text)])
    last = ""
    async for event in runner.run_async(user_id=USER, session_id=session.id, new_message=said):
        if event.error_message:
            raise RuntimeError(event.error_message)
        parts: list[Any] = event.content.parts if event.content else []
        last = "".join(part.text for part in parts if part.text) or last
    return last


async def main(url: str, texts: list[str]) -> None:
    agent = adk.RemoteA2aAgent(name="remote", agent_card=f"{url}/.well-known/agent-card.json")
    runner = runners.InMemoryRunner(agent=agent, app_name=APP)
    session = await runner.session_service.create_session(app_name=APP, user_id=USER)
    async with asyncio.timeout(PATIENCE):
        answers = [await answer(runner, session, text) for text in texts]
    sys.stdout.write(json.dumps(answers))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
