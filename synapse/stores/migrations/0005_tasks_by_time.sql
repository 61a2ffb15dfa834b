-- The ids of new tasks hold the time, and their numbers are in its order; see sqlite_keys.py. The index has the ids, too:
-- it is looked through for the beginning of one, which no index has any more.
DROP INDEX tasks_by_key;
UPDATE tasks SET key = id_key(id);
CREATE INDEX tasks_by_key ON tasks (key, id);
