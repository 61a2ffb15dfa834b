-- What is appended together is one row: a task that lives its whole life in one append costs one row and no snapshot.
-- The events are still the truth: all the rest can be made again from them, except leases. For the numbers
-- that stand for texts see sqlite_keys.py: texts that are as good as random are indexed by numbers.
CREATE TABLE appends (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, -- of its last event; never used twice, so that a reader can resume after it
    task INTEGER NOT NULL,                 -- the number of the task
    version INTEGER NOT NULL,              -- of the task after it
    -- An id that a caller chose for the first message in it, and a digest of what was said, so that the same message
    -- sent twice makes one task. It is claimed for the inbox and the scope of the task.
    message_key INTEGER,
    message_id TEXT,
    digest TEXT,
    body TEXT NOT NULL                     -- a JSON list of its events; see event_rows.py
);
-- Seqs go on where they were, even if the newest events have been pruned.
INSERT INTO sqlite_sequence (name, seq) SELECT 'appends', seq FROM sqlite_sequence WHERE name = 'events';

INSERT INTO appends (seq, task, version, message_key, message_id, digest, body)
SELECT events.seq, tasks.number, events.version,
    CASE WHEN messages.message_id IS NOT NULL THEN text_key(messages.message_id) END,
    messages.message_id, messages.digest, '[["' || kind || '",' || at || ',' || body || ']]'
FROM events CROSS JOIN tasks ON tasks.id = events.task_id
LEFT JOIN messages ON events.kind IN ('task_opened', 'message_added')
    AND messages.message_id = json_extract(body, '$.message.message_id')
    AND messages.inbox = tasks.inbox AND messages.scope = tasks.scope AND messages.task_id = events.task_id
ORDER BY events.seq;
CREATE UNIQUE INDEX appends_by_task ON appends (task, version);
CREATE INDEX appends_by_message ON appends (message_key) WHERE message_key IS NOT NULL;
DROP TABLE events;
DROP TABLE messages;

-- The table of snapshots stays as it is. A task is its snapshot, or else its first append, and the appends after it. A
-- snapshot is written when a task of several appends ends or waits for somebody, and now and then while it is long.

ALTER TABLE tasks RENAME TO old_tasks;
-- An index of the tasks as they are now. Small rows, because every append changes one.
CREATE TABLE tasks (
    -- The seq of its first append: it is known when the task is written, and the text of a task that is whole there is
    -- found without an index. Tasks from before this schema keep their numbers, of which there are fewer than seqs.
    number INTEGER PRIMARY KEY,
    key INTEGER NOT NULL,         -- id_key(id)
    id TEXT NOT NULL,             -- once only: whoever opens a task looks first
    inbox TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    scope TEXT NOT NULL,
    context_key INTEGER NOT NULL, -- context_key(context_id)
    context_id TEXT NOT NULL,
    parent_id TEXT NOT NULL,
    state TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    version INTEGER NOT NULL,
    hidden INTEGER NOT NULL
);
INSERT INTO tasks
SELECT number, id_key(id), id, inbox, agent_id, scope, context_key(context_id), context_id, parent_id, state, created_at,
    updated_at, version, hidden
FROM old_tasks ORDER BY number;
DROP TABLE old_tasks; -- and with it the triggers that counted: the counts are kept where the tasks are written
CREATE INDEX tasks_by_key ON tasks (key);
CREATE INDEX tasks_by_inbox ON tasks (inbox, updated_at, number, hidden, scope, state);
CREATE INDEX tasks_by_change ON tasks (updated_at, number, hidden, scope, state);
CREATE INDEX tasks_by_context ON tasks (context_key);
CREATE INDEX tasks_by_agent ON tasks (agent_id, updated_at, number, hidden, scope, state);
CREATE INDEX tasks_by_parent ON tasks (parent_id) WHERE parent_id <> '';
CREATE INDEX tasks_open ON tasks (inbox, created_at)
WHERE state IN ('submitted', 'working', 'input_required', 'auth_required');
