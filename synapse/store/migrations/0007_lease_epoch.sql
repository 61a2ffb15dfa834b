-- A lease has an epoch, which grows with each acquisition: a host that was suspended while another took its inbox over
-- is told from its successor, and its appends are refused. A lease that is given back keeps its row: an epoch is never
-- used twice.
ALTER TABLE inboxes ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
-- A host of schema 6 or older takes a lease with INSERT OR REPLACE, which would begin the epochs anew. Under another name
-- of the column that fails at once.
ALTER TABLE inboxes RENAME COLUMN holder TO held_by;
