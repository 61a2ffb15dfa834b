-- The events are the truth: all the rest can be made again from them, except leases.
CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, -- never used twice, so that a reader can resume after one that was pruned
    task_id TEXT NOT NULL,
    version INTEGER NOT NULL,              -- of the task after this event
    kind TEXT NOT NULL,
    at INTEGER NOT NULL,                   -- moments are microseconds since 1970
    body TEXT NOT NULL                     -- JSON; see rows.py
);
CREATE UNIQUE INDEX events_by_task ON events (task_id, version);

-- An index of the tasks as they are now. Small rows, because every event changes one. Few indexes on random values: each
-- costs a page of the log per new task once there are many; a context is found by looking through its inbox.
CREATE TABLE tasks (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    inbox TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    scope TEXT NOT NULL,
    context_id TEXT NOT NULL,
    parent_id TEXT NOT NULL,
    state TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    version INTEGER NOT NULL,
    hidden INTEGER NOT NULL
);
CREATE INDEX tasks_by_inbox ON tasks (inbox, updated_at);
CREATE INDEX tasks_by_change ON tasks (updated_at);
CREATE INDEX tasks_by_parent ON tasks (parent_id) WHERE parent_id <> '';
CREATE INDEX tasks_open ON tasks (inbox, created_at)
WHERE state IN ('submitted', 'working', 'input_required', 'auth_required');

-- A task is its snapshot and the events after it. One is written when the state changes, so a streamed answer does not
-- rewrite the task with every chunk. A task that never changed its state needs none: its first event holds it all.
CREATE TABLE snapshots (
    number INTEGER PRIMARY KEY, -- of the task
    version INTEGER NOT NULL,
    body TEXT NOT NULL
);

-- Message ids that callers chose, so that the same message sent twice makes one task.
CREATE TABLE messages (
    inbox TEXT NOT NULL,
    scope TEXT NOT NULL,
    message_id TEXT NOT NULL,
    task_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (inbox, scope, message_id)
) WITHOUT ROWID;

-- Who may write the tasks of an inbox.
CREATE TABLE inboxes (
    inbox TEXT PRIMARY KEY,
    holder TEXT NOT NULL
) WITHOUT ROWID;
