-- Webhooks that want to be told about a task, and how far each has been told: all events up to `told` were delivered or
-- given up. The event log is the queue, so nothing is written here when an event is recorded.
CREATE TABLE pushes (
    number INTEGER PRIMARY KEY AUTOINCREMENT, -- never used twice: it is part of what receivers know a notification by
    task_id TEXT NOT NULL,
    config_id TEXT NOT NULL,
    inbox TEXT NOT NULL,
    told INTEGER NOT NULL,
    is_open INTEGER NOT NULL,                 -- there may be more to tell
    body TEXT NOT NULL,
    UNIQUE (task_id, config_id)
);
CREATE INDEX pushes_open ON pushes (inbox, number) WHERE is_open = 1;

-- What became of each notification: an event of the log on its way to a webhook.
CREATE TABLE deliveries (
    push INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    at INTEGER NOT NULL,
    status INTEGER NOT NULL,
    error TEXT NOT NULL,
    next_try INTEGER,
    PRIMARY KEY (push, seq)
) WITHOUT ROWID;
CREATE INDEX deliveries_by_time ON deliveries (at);

-- A page of tasks and their number come out of an index alone. The columns behind the order are there to be looked at.
DROP INDEX tasks_by_inbox;
DROP INDEX tasks_by_change;
CREATE INDEX tasks_by_inbox ON tasks (inbox, updated_at, number, hidden, scope, state);
CREATE INDEX tasks_by_change ON tasks (updated_at, number, hidden, scope, state);
CREATE INDEX tasks_by_context ON tasks (context_id);

-- How many tasks there are that can be seen: counting a hundred thousand takes longer than showing a page of them.
CREATE TABLE task_counts (
    inbox TEXT NOT NULL,
    scope TEXT NOT NULL,
    state TEXT NOT NULL,
    tasks INTEGER NOT NULL,
    PRIMARY KEY (inbox, scope, state)
) WITHOUT ROWID;
INSERT INTO task_counts SELECT inbox, scope, state, COUNT(*) FROM tasks WHERE hidden = 0 GROUP BY inbox, scope, state;

CREATE TRIGGER task_opened AFTER INSERT ON tasks WHEN NEW.hidden = 0 BEGIN
    INSERT INTO task_counts VALUES (NEW.inbox, NEW.scope, NEW.state, 1)
    ON CONFLICT DO UPDATE SET tasks = tasks + 1;
END;
CREATE TRIGGER task_moved AFTER UPDATE OF state, hidden ON tasks
WHEN OLD.state <> NEW.state OR OLD.hidden <> NEW.hidden BEGIN
    UPDATE task_counts SET tasks = tasks - 1
    WHERE inbox = OLD.inbox AND scope = OLD.scope AND state = OLD.state AND OLD.hidden = 0;
    INSERT INTO task_counts SELECT NEW.inbox, NEW.scope, NEW.state, 1 WHERE NEW.hidden = 0
    ON CONFLICT DO UPDATE SET tasks = tasks + 1;
END;
CREATE TRIGGER task_pruned AFTER DELETE ON tasks WHEN OLD.hidden = 0 BEGIN
    UPDATE task_counts SET tasks = tasks - 1
    WHERE inbox = OLD.inbox AND scope = OLD.scope AND state = OLD.state;
END;
