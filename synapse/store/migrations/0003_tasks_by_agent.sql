-- Whose tasks are they, by the agent's id: asked for every agent that a gateway does not find in the registry.
CREATE INDEX tasks_by_agent ON tasks (agent_id);
