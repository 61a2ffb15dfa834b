-- name: last_seq
SELECT seq FROM sqlite_sequence WHERE name = 'appends';

-- name: insert_append
INSERT OR ROLLBACK INTO appends (seq, task, version, message_key, message_id, digest, body)
VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: insert_task
INSERT OR ROLLBACK INTO tasks
    (number, id_key, id, inbox, agent_id, scope, context_key, context_id, parent_id, created_at, state, updated_at,
    version, hidden)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: stored_tasks
SELECT id, number, version, inbox, scope, state, hidden FROM tasks WHERE id_key IN (VALUES (?));

-- name: claimed_messages
SELECT message_id, inbox, scope
FROM appends INDEXED BY appends_by_message CROSS JOIN tasks ON tasks.number = appends.task
WHERE message_key IN (VALUES (?));

-- name: update_task
UPDATE OR ROLLBACK tasks
SET state = new.column2, updated_at = new.column3, version = new.column4, hidden = new.column5
FROM (VALUES (?, ?, ?, ?, ?)) AS new WHERE tasks.number = new.column1;

-- name: write_snapshot
INSERT OR REPLACE INTO snapshots (number, version, body) VALUES (?, ?, ?);

-- name: add_task_counts
INSERT INTO task_counts (inbox, scope, state, tasks) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET tasks = tasks + excluded.tasks;

-- name: add_stored_bytes
INSERT INTO stored_bytes (inbox, scope, bytes) VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET bytes = MAX(0, bytes + excluded.bytes);

-- name: stored_bytes
SELECT COALESCE(SUM(bytes), 0) FROM stored_bytes WHERE ?1 IN ('', inbox) AND ?2 IN ('', scope);

-- name: bytes_of_task
SELECT COALESCE(SUM(LENGTH(CAST(body AS BLOB))), 0) FROM appends WHERE task = ?;

-- name: find_message
SELECT tasks.id, digest FROM appends INDEXED BY appends_by_message CROSS JOIN tasks ON tasks.number = appends.task
WHERE message_key = ?1 AND message_id = ?2 AND ?3 IN ('', inbox) AND ?4 IN ('', scope)
ORDER BY inbox, scope LIMIT 1;

-- name: load_task
SELECT tasks.number, tasks.id, tasks.updated_at, tasks.version,
    COALESCE(snapshots.version, appends.version), COALESCE(snapshots.body, appends.body)
FROM tasks LEFT JOIN snapshots ON snapshots.number = tasks.number
LEFT JOIN appends ON appends.seq = tasks.number AND appends.task = tasks.number AND snapshots.number IS NULL
WHERE tasks.id_key = ? AND tasks.id = ?;

-- name: open_tasks
SELECT tasks.number, tasks.id, tasks.updated_at, tasks.version,
    COALESCE(snapshots.version, appends.version), COALESCE(snapshots.body, appends.body)
FROM tasks INDEXED BY tasks_open LEFT JOIN snapshots ON snapshots.number = tasks.number
LEFT JOIN appends ON appends.seq = tasks.number AND appends.task = tasks.number AND snapshots.number IS NULL
WHERE tasks.state IN ('submitted', 'working', 'input_required', 'auth_required') AND tasks.inbox = ?
ORDER BY tasks.created_at, tasks.number;

-- name: list_tasks
SELECT tasks.number, tasks.id, tasks.updated_at, tasks.version,
    COALESCE(snapshots.version, appends.version), COALESCE(snapshots.body, appends.body)
FROM tasks {index} LEFT JOIN snapshots ON snapshots.number = tasks.number
LEFT JOIN appends ON appends.seq = tasks.number AND appends.task = tasks.number AND snapshots.number IS NULL
WHERE {conditions}
ORDER BY tasks.updated_at DESC, tasks.number DESC
LIMIT ?;

-- name: count_tasks
SELECT COUNT(*) FROM tasks {index} WHERE {conditions};

-- name: counted_tasks
SELECT COALESCE(SUM(tasks), 0) FROM task_counts WHERE {conditions};

-- name: appends_since
SELECT seq, body FROM appends WHERE task = ? AND version > ? ORDER BY version;

-- name: appends_of_task
SELECT seq, ?1, body FROM appends INDEXED BY appends_by_task
WHERE task = (SELECT number FROM tasks WHERE id_key = ?2 AND id = ?1) AND seq > ?3 ORDER BY version;

-- name: appends_of_all
SELECT seq, id, body FROM appends CROSS JOIN tasks ON tasks.number = appends.task WHERE seq > ? ORDER BY seq;

-- name: find_task
SELECT id FROM tasks WHERE id_key = ?1 AND id = ?2 AND hidden = 0 AND ?3 IN ('', inbox);

-- name: find_tasks
SELECT id FROM tasks INDEXED BY tasks_by_key
WHERE id >= ?1 AND id < ?2 AND hidden = 0 AND ?3 IN ('', inbox)
ORDER BY number DESC LIMIT ?4;

-- name: lease
SELECT held_by, epoch FROM inboxes WHERE inbox = ?;

-- name: leases
SELECT inbox, held_by FROM inboxes WHERE held_by <> '' ORDER BY inbox;

-- name: leases_before_epochs
SELECT inbox, holder FROM inboxes ORDER BY inbox;

-- name: acquire
INSERT INTO inboxes (inbox, held_by, epoch) VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET held_by = excluded.held_by, epoch = excluded.epoch;

-- name: release
UPDATE inboxes SET held_by = '' WHERE inbox = ? AND held_by = ? AND epoch = ?;

-- name: old_tasks
SELECT number, id, inbox, scope, state, version, hidden FROM tasks
WHERE updated_at < ?1 AND state IN ('completed', 'failed', 'canceled', 'rejected')
    AND (updated_at < ?2 OR scope NOT GLOB 'machine:*')
ORDER BY updated_at LIMIT ?3;

-- name: store_id
SELECT store_id FROM identity;

-- name: delete_appends
DELETE FROM appends WHERE task = ?;

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

-- name: appends_to_index
SELECT appends.seq, tasks.number, tasks.id FROM appends CROSS JOIN tasks ON tasks.number = appends.task
WHERE appends.seq > ? ORDER BY appends.seq LIMIT ?;

-- name: task_to_index
SELECT tasks.number, tasks.id, tasks.updated_at, tasks.version,
    COALESCE(snapshots.version, appends.version), COALESCE(snapshots.body, appends.body),
    tasks.hidden, docs.version, docs.text_key
FROM tasks LEFT JOIN snapshots ON snapshots.number = tasks.number
LEFT JOIN appends ON appends.seq = tasks.number AND appends.task = tasks.number AND snapshots.number IS NULL
LEFT JOIN docs ON docs.number = tasks.number
WHERE tasks.number = ?;

-- name: docs_to_forget
SELECT number FROM docs
WHERE NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.number = docs.number AND tasks.hidden = 0) LIMIT ?;

-- name: has_docs_to_forget
SELECT (SELECT COUNT(*) FROM docs) > (SELECT COALESCE(SUM(tasks), 0) FROM task_counts);

-- name: appends_to_ship
SELECT appends.seq, tasks.id, appends.version, appends.body, appends.message_id, appends.digest
FROM appends CROSS JOIN tasks ON tasks.number = appends.task
WHERE appends.seq > ? AND appends.seq <= ? ORDER BY appends.seq;

-- name: replica_logs
SELECT number, machine, counter, nonce, seq, digest, is_closed, opened_at, changed_at FROM logs ORDER BY number;

-- name: begin_log
INSERT INTO logs (machine, counter, nonce, seq, digest, is_closed, opened_at, changed_at)
VALUES (?, ?, ?, 0, x'', 0, ?, ?) RETURNING number;

-- name: move_log
UPDATE logs SET seq = ?, digest = ?, changed_at = ? WHERE number = ?;

-- name: close_log
UPDATE logs SET is_closed = 1 WHERE number = ?;

-- name: write_mark
INSERT OR REPLACE INTO marks (log, seq, digest, at) VALUES (?, ?, ?, ?);

-- name: marks_after
SELECT seq, digest FROM marks WHERE log = ? AND seq > ? ORDER BY seq LIMIT ?;

-- name: forget_marks
DELETE FROM marks WHERE at < ?;

-- name: insert_origin
INSERT OR ROLLBACK INTO origins (seq, log, origin_seq, is_made) VALUES (?, ?, ?, ?);

-- name: insert_original
INSERT INTO originals (seq, body) VALUES (?, ?);

-- name: insert_unread
INSERT OR IGNORE INTO unread (log, origin_seq, task_id, version, body, message_id, digest, at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: unread_rows
SELECT origin_seq, task_id, version, body, message_id, digest
FROM unread WHERE log = ? AND origin_seq > ? ORDER BY origin_seq LIMIT ?;

-- name: count_unread
SELECT log, COUNT(*) FROM unread GROUP BY log;

-- name: delete_unread
DELETE FROM unread WHERE log = ? AND origin_seq = ?;

-- name: forget_unread
DELETE FROM unread WHERE at < ?;

-- name: known_origins
SELECT origin_seq FROM origins WHERE log = ?1 AND origin_seq > ?2 AND origin_seq <= ?3 AND is_made = 0
UNION SELECT origin_seq FROM unread WHERE log = ?1 AND origin_seq > ?2 AND origin_seq <= ?3;

-- name: task_of_replica
SELECT tasks.number, tasks.version, tasks.inbox, tasks.scope, tasks.state, tasks.hidden, origins.log, MAX(origins.origin_seq)
FROM tasks CROSS JOIN appends ON appends.task = tasks.number CROSS JOIN origins ON origins.seq = appends.seq
WHERE tasks.id_key = ? AND tasks.id = ?
GROUP BY tasks.number;

-- name: open_tasks_of_log
SELECT DISTINCT tasks.id
FROM tasks INDEXED BY tasks_open CROSS JOIN origins ON origins.seq = tasks.number
WHERE tasks.state IN ('submitted', 'working', 'input_required', 'auth_required') AND origins.log = ?;

-- name: origins_of_task
SELECT origins.origin_seq, ?1, body
FROM appends INDEXED BY appends_by_task CROSS JOIN origins ON origins.seq = appends.seq
WHERE task = (SELECT number FROM tasks WHERE id_key = ?2 AND id = ?1) AND origins.origin_seq > ?3 ORDER BY version;

-- name: origins_of_all
SELECT appends.seq, origins.origin_seq, tasks.id, body
FROM appends CROSS JOIN tasks ON tasks.number = appends.task CROSS JOIN origins ON origins.seq = appends.seq
WHERE appends.seq > ? ORDER BY appends.seq;

-- name: replica_rows
SELECT origin_seq, id, version, body, message_id, digest, original FROM (
    SELECT origins.origin_seq, tasks.id, appends.version, appends.body, appends.message_id, appends.digest,
        originals.body AS original
    FROM origins CROSS JOIN appends ON appends.seq = origins.seq CROSS JOIN tasks ON tasks.number = appends.task
    LEFT JOIN originals ON originals.seq = origins.seq
    WHERE origins.log = ?1 AND origins.origin_seq > ?2 AND origins.origin_seq <= ?3 AND origins.is_made = 0
    UNION ALL
    SELECT origin_seq, task_id, version, '', message_id, digest, body FROM unread
    WHERE log = ?1 AND origin_seq > ?2 AND origin_seq <= ?3
) ORDER BY origin_seq;
