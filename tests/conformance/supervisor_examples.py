"""The JSON of the supervisor document's examples, as it stands there; `%s` in the task stands for its status."""

from __future__ import annotations

from typing import Final

SEND: Final = """{
  "message": {
    "content": "Your message here",
    "role": "user"
  },
  "configuration": {
    "acceptedOutputModes": ["text", "json"],
    "historyLength": 10,
    "pushNotificationConfig": {
      "id": "notification-config-1",
      "url": "https://your-webhook.example.com/task-update",
      "token": "your-auth-token",
      "authentication": {
        "schemes": ["bearer"],
        "credentials": "auth-credentials"
      }
    },
    "blocking": true
  },
  "metadata": {
    "customField": "customValue"
  }
}"""
TASK: Final = """{
  "id": "agent1:task-12345",
  "status": "%s",
  "messages": [
    {
      "content": "Response from agent",
      "role": "assistant",
      "id": "msg-67890",
      "timestamp": "2025-11-18T10:00:00.000Z"
    }
  ],
  "artifacts": [
    {
      "id": "artifact-1",
      "type": "code",
      "description": "Generated code file",
      "uri": "file://path/to/generated/code"
    }
  ],
  "history": [
    {
      "id": "hist-1",
      "timestamp": "2025-11-18T10:00:00.000Z",
      "message": {
        "content": "Previous message",
        "role": "user"
      }
    }
  ],
  "createdAt": "2025-11-18T10:00:00.000Z",
  "modifiedAt": "2025-11-18T10:00:30.000Z"
}"""
PUSH: Final = """{
  "taskId": "agent1:task-12345",
  "pushNotificationConfig": {
    "id": "config-1",
    "url": "https://your-webhook.example.com/task-update",
    "token": "your-auth-token",
    "authentication": {
      "schemes": ["bearer"],
      "credentials": "auth-credentials"
    }
  }
}"""
CARD: Final = """{
  "id": "claude-agent",
  "name": "Claude Code Agent",
  "description": "CLI Claude Code agent wrapped by algonius-supervisor",
  "version": "1.0.0",
  "protocols": {
    "a2a": {
      "supported": true,
      "version": "1.0"
    }
  },
  "capabilities": {
    "pushNotifications": true,
    "streaming": true
  },
  "endpoints": {
    "a2a": "https://your-agent-domain.com/agents/claude-agent/v1"
  },
  "supportedOutputModes": ["text", "json"],
  "supportsAuthenticatedExtendedCard": true,
  "metadata": {
    "agentType": "claude-code",
    "wrappedAgents": ["claude-code"]
  }
}"""
AGENTS: Final = """{
  "agents": [
    {
      "id": "claude-agent",
      "name": "Claude Code Agent",
      "description": "CLI Claude Code agent",
      "cardUrl": "/agents/claude-agent/v1/card",
      "endpoint": "/agents/claude-agent/v1",
      "status": "active"
    },
    {
      "id": "gemini-agent",
      "name": "Gemini CLI Agent",
      "description": "CLI Gemini agent",
      "cardUrl": "/agents/gemini-agent/v1/card",
      "endpoint": "/agents/gemini-agent/v1",
      "status": "active"
    }
  ]
}"""
