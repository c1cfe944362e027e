-- Operations that take their nodes in rounds, and how they were asked for; rebuilds of a node.

ALTER TABLE operations ADD COLUMN done TEXT NOT NULL DEFAULT '';          -- hostlist
ALTER TABLE operations ADD COLUMN later TEXT NOT NULL DEFAULT '';         -- hostlist
ALTER TABLE operations ADD COLUMN options TEXT NOT NULL DEFAULT '{}';     -- JSON
ALTER TABLE nodes ADD COLUMN rebuilds INTEGER NOT NULL DEFAULT 0;
