"""The exit codes, their meanings, and the exit code of each error.

`synapse send` imports this module, so it imports nothing.
"""

DONE = 0
FAILED = 1
USAGE = 2
NOT_FOUND = 3
AMBIGUOUS = 4
TIMED_OUT = 5
WAITING_FOR_PERSON = 6
REFUSED = 7
NOT_RESPONDING = 8
INTERRUPTED = 130

MEANINGS = {
    DONE: "done",
    FAILED: "failed",
    USAGE: "wrong usage",
    NOT_FOUND: "not found",
    AMBIGUOUS: "the name matches more than one",
    TIMED_OUT: "no answer in time; the task continues",
    WAITING_FOR_PERSON: "the agent waits for a person",
    REFUSED: "refused",
    NOT_RESPONDING: "the agent's host does not respond, or its machine cannot be reached",
    INTERRUPTED: "interrupted with Ctrl-C; a task that was sent continues",
}

BY_ERROR = {
    "error": FAILED,
    "invalid_request": USAGE,
    "body_too_large": REFUSED,
    "body_too_slow": FAILED,
    "unsupported_media_type": FAILED,
    "method_not_allowed": FAILED,
    "priority_out_of_range": USAGE,
    "unknown_profile": NOT_FOUND,
    "invalid_settings": USAGE,
    "invalid_profile": USAGE,
    "invalid_script": USAGE,
    "unsupported_operation": REFUSED,
    "invalid_field": USAGE,
    "malformed_json": USAGE,
    "malformed_call": USAGE,
    "version_not_supported": REFUSED,
    "extension_required": REFUSED,
    "push_not_supported": REFUSED,
    "push_config_not_found": NOT_FOUND,
    "extended_card_missing": REFUSED,
    "ambiguous": AMBIGUOUS,
    "ambiguous_target": AMBIGUOUS,
    "ambiguous_task": AMBIGUOUS,
    "not_found": NOT_FOUND,
    "task_not_found": NOT_FOUND,
    "agent_not_found": NOT_FOUND,
    "external_agent_not_found": NOT_FOUND,
    "machine_not_found": NOT_FOUND,
    "route_not_found": NOT_FOUND,
    "conflict": REFUSED,
    "search_not_ready": REFUSED,
    "nothing_asked": REFUSED,
    "question_gone": REFUSED,
    "invalid_choice": USAGE,
    "illegal_transition": REFUSED,
    "task_finished": REFUSED,
    "task_not_cancelable": REFUSED,
    "version_conflict": REFUSED,
    "message_id_reused": REFUSED,
    "queue_full": REFUSED,
    "quota_exceeded": REFUSED,
    "wait_cycle": REFUSED,
    "not_in_fleet": REFUSED,
    "name_taken": REFUSED,
    "port_taken": REFUSED,
    "feed_lagged": FAILED,
    "access_denied": REFUSED,
    "sender_mismatch": REFUSED,
    "invitation_refused": REFUSED,
    "sender_not_accepted": REFUSED,
    "person_required": REFUSED,
    "unauthenticated": REFUSED,
    "foreign_origin": REFUSED,
    "forbidden": REFUSED,
    "credentials_refused": REFUSED,
    "rate_limited": REFUSED,
    "too_many_streams": REFUSED,
    "key_not_found": NOT_FOUND,
    "agent_failed": FAILED,
    "agent_exited": FAILED,
    "agent_unresponsive": FAILED,
    "agent_not_responding": NOT_RESPONDING,
    "connection_forbidden": NOT_RESPONDING,
    "outcome_unknown": NOT_RESPONDING,
    "command_missing": NOT_FOUND,
    "file_not_stored": FAILED,
    "link_down": NOT_RESPONDING,
    "machine_away": NOT_RESPONDING,
    "external_agent_failed": FAILED,
    "external_agent_unreachable": NOT_RESPONDING,
    "external_address_refused": REFUSED,
    "no_agent_there": NOT_FOUND,
    "timeout": TIMED_OUT,
    "waiting_for_person": WAITING_FOR_PERSON,
    "store_failed": FAILED,
    "store_locked": FAILED,
    "store_corrupt": FAILED,
    "store_too_new": FAILED,
    "store_full": FAILED,
    "store_lost": FAILED,
    "store_in_use": FAILED,
    "lease_lost": FAILED,
    "store_unsafe": FAILED,
    "registry_failed": FAILED,
    "internal": FAILED,
}

# The next step, for errors that carry no hint.
HINTS = {
    "task_not_found": "`synapse tasks` lists recent tasks; finished tasks are kept for `keep_days`",
    "task_not_cancelable": "`synapse status TASK` shows how it ended",
    "task_finished": "`synapse status TASK` shows how it ended",
    "message_id_reused": "use another `--message-id`, or omit it to get a new one",
    "priority_out_of_range": "use 1 to 5; the default is 3, and 5 interrupts  (synapse send --help)",
}


def exit_code(error_code: str) -> int:
    """Returns the exit code of an error code; FAILED for a code that only a newer host knows."""
    return BY_ERROR.get(error_code, FAILED)
