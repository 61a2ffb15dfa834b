-- The ids of new tasks hold the time, and their numbers are in its order; see sqlite_keys.py. The index has the ids, too:
-- it is looked through for the beginning of one, which no index has any more.
DROP INDEX tasks_by_key;
-- Whoever still runs with schema 4 writes numbers by which nobody finds a task any more. Under another name of the
-- column that fails at once, until the agent is restarted.
ALTER TABLE tasks RENAME COLUMN key TO id_key;
UPDATE tasks SET id_key = id_key(id);
CREATE INDEX tasks_by_key ON tasks (id_key, id);
