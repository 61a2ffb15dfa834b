"""What can go wrong with push notifications; the same tree as `core.errors`.

NotFound
└── TaskNotFound              PushConfigNotFound
"""

from __future__ import annotations

from synapse.core.errors import TaskNotFound


class PushConfigNotFound(TaskNotFound):
    """The task has no such push configuration."""

    # A2A has one answer for both: whoever asks for a configuration of a task learns no more than that.
    code = "push_config_not_found"

    def __init__(self, task_id: str, config_id: str) -> None:
        super(TaskNotFound, self).__init__(
            f"task '{task_id}' has no push configuration '{config_id}'"
            if config_id
            else f"task '{task_id}' has no push configuration",
            hint="list the task's push configurations",
        )
