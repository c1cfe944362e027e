-- How long the last boots took is asked often, and must not read all events.

CREATE INDEX events_registered ON events (id) WHERE what = 'node registered';
