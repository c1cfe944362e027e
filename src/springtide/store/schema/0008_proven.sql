-- Whether a node has used the key that it got for its token; and who joined from an address.

ALTER TABLE tickets ADD COLUMN proven INTEGER NOT NULL DEFAULT 0;

CREATE INDEX tickets_peer ON tickets (json_extract(machine, '$.address'));
