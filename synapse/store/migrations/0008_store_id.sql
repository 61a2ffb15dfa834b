-- A store has an id of its own. The link of a fleet knows by it that another store has taken the place of the one whose
-- log it had sent to other machines.
CREATE TABLE identity (store_id TEXT NOT NULL);
INSERT INTO identity VALUES (lower(hex(randomblob(16))));
