-- name: last_seq
SELECT seq FROM sqlite_sequence WHERE name = 'events';

-- name: insert_event
INSERT OR ROLLBACK INTO events (task_id, version, kind, at, body, seq) VALUES (?, ?, ?, ?, ?, ?);

-- name: insert_task
INSERT OR ROLLBACK INTO tasks (id, inbox, agent_id, scope, context_id, parent_id, created_at, state, updated_at, version, hidden)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: update_task
UPDATE OR ROLLBACK tasks SET state = ?, updated_at = ?, version = ?, hidden = ? WHERE id = ? AND version = ?;

-- name: write_snapshot
INSERT OR REPLACE INTO snapshots (number, version, body) SELECT number, ?, ? FROM tasks WHERE id = ?;

-- name: claim_message
INSERT OR ROLLBACK INTO messages (inbox, scope, message_id, task_id, digest) VALUES (?, ?, ?, ?, ?);

-- name: find_message
SELECT task_id, digest FROM messages WHERE inbox = ? AND scope = ? AND message_id = ?;

-- name: load_task
SELECT tasks.number, tasks.id, tasks.updated_at, tasks.version, snapshots.version, snapshots.body
FROM tasks LEFT JOIN snapshots ON snapshots.number = tasks.number
WHERE tasks.id = ?;

-- name: open_tasks
SELECT tasks.number, tasks.id, tasks.updated_at, tasks.version, snapshots.version, snapshots.body
FROM tasks INDEXED BY tasks_open LEFT JOIN snapshots ON snapshots.number = tasks.number
WHERE tasks.state IN ('submitted', 'working', 'input_required', 'auth_required') AND tasks.inbox = ?
ORDER BY tasks.created_at, tasks.number;

-- name: list_tasks
SELECT tasks.number, tasks.id, tasks.updated_at, tasks.version, snapshots.version, snapshots.body
FROM tasks {index} LEFT JOIN snapshots ON snapshots.number = tasks.number
WHERE {conditions}
ORDER BY tasks.updated_at DESC, tasks.number DESC
LIMIT ?;

-- name: count_tasks
SELECT COUNT(*) FROM tasks {index} WHERE {conditions};

-- name: counted_tasks
SELECT COALESCE(SUM(tasks), 0) FROM task_counts WHERE {conditions};

-- name: events_since_snapshot
SELECT seq, task_id, kind, at, body FROM events WHERE task_id = ? AND version > ? ORDER BY version;

-- name: events_of_task
SELECT seq, task_id, kind, at, body FROM events WHERE task_id = ? AND seq > ? ORDER BY version LIMIT ?;

-- name: events_of_all
SELECT seq, task_id, kind, at, body FROM events WHERE seq > ? ORDER BY seq LIMIT ?;

-- name: find_tasks
SELECT id FROM tasks WHERE id >= ?1 AND id < ?2 AND hidden = 0 AND ?3 IN ('', inbox)
ORDER BY number DESC LIMIT ?4;

-- name: holder
SELECT holder FROM inboxes WHERE inbox = ?;

-- name: take_inbox
INSERT OR REPLACE INTO inboxes (inbox, holder) VALUES (?, ?);

-- name: release_inbox
DELETE FROM inboxes WHERE inbox = ? AND holder = ?;

-- name: old_tasks
SELECT number, id, inbox, scope, version FROM tasks
WHERE updated_at < ? AND state IN ('completed', 'failed', 'canceled', 'rejected')
ORDER BY updated_at LIMIT ?;

-- name: messages_of_task
SELECT body FROM events WHERE task_id = ? AND kind IN ('task_opened', 'message_added');

-- name: forget_message
DELETE FROM messages WHERE inbox = ? AND scope = ? AND message_id = ? AND task_id = ?;

-- name: delete_events
DELETE FROM events WHERE task_id = ?;

-- name: delete_snapshot
DELETE FROM snapshots WHERE number = ?;

-- name: delete_task
DELETE FROM tasks WHERE number = ?;

-- name: save_push
INSERT INTO pushes (task_id, config_id, inbox, told, is_open, body) VALUES (?, ?, ?, ?, 1, ?)
ON CONFLICT (task_id, config_id) DO UPDATE SET body = excluded.body, is_open = 1;

-- name: push_of_task
SELECT number, task_id, config_id, inbox, told, body, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM pushes WHERE task_id = ? AND config_id = ?;

-- name: pushes_of_task
SELECT number, task_id, config_id, inbox, told, body, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM pushes WHERE task_id = ? ORDER BY number;

-- name: open_pushes
SELECT number, task_id, config_id, inbox, told, body, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM pushes WHERE is_open = 1 AND inbox = ? AND number > ? ORDER BY number;

-- name: load_push
SELECT pushes.number, task_id, config_id, inbox, told, body, seq, state, attempts, at, status, error, next_try
FROM pushes LEFT JOIN deliveries ON push = pushes.number AND seq > told AND state = 'pending'
WHERE pushes.number = ? ORDER BY seq LIMIT 1;

-- name: delete_deliveries_of
DELETE FROM deliveries WHERE push IN (SELECT number FROM pushes WHERE task_id = ? AND config_id = ?);

-- name: delete_push
DELETE FROM pushes WHERE task_id = ? AND config_id = ?;

-- name: move_told
UPDATE pushes SET told = MAX(told, ?) WHERE number = ?;

-- name: write_delivery
INSERT OR REPLACE INTO deliveries (push, seq, state, attempts, at, status, error, next_try)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: finish_push
UPDATE pushes SET told = MAX(told, ?), is_open = 0 WHERE number = ?;

-- name: latest_deliveries
SELECT pushes.number, task_id, config_id, inbox, told, body, seq, state, attempts, at, status, error, next_try
FROM deliveries INDEXED BY deliveries_by_time CROSS JOIN pushes ON pushes.number = push
ORDER BY at DESC, push DESC, seq DESC LIMIT ?;

-- name: pushes_without_delivery
SELECT number, task_id, config_id, inbox, told, body FROM pushes
WHERE is_open = 1 AND NOT EXISTS (SELECT 1 FROM deliveries WHERE push = number)
ORDER BY number DESC LIMIT ?;

-- name: count_deliveries
SELECT state, COUNT(*) FROM deliveries GROUP BY state;

-- name: delete_deliveries_of_task
DELETE FROM deliveries WHERE push IN (SELECT number FROM pushes WHERE task_id = ?);

-- name: delete_pushes_of_task
DELETE FROM pushes WHERE task_id = ?;

-- name: next_senders
SELECT inbox, scope FROM messages WHERE (inbox, scope) > (?, ?) ORDER BY inbox, scope LIMIT 1;
