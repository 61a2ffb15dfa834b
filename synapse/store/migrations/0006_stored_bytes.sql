-- How much is kept, for the quotas of agents and of keys: the texts of all events, which hold the files that came with
-- messages. Snapshots do not count, because they say the same once more.
CREATE TABLE stored_bytes (
    inbox TEXT NOT NULL,
    scope TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (inbox, scope)
) WITHOUT ROWID;
INSERT INTO stored_bytes
SELECT inbox, scope, SUM(LENGTH(CAST(body AS BLOB)))
FROM appends CROSS JOIN tasks ON tasks.number = appends.task GROUP BY inbox, scope;
