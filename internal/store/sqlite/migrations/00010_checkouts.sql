-- +goose Up
-- A checkout in a shared sandbox was a sandbox of its own, with the id of the shared one in Within. It is data of that now.
UPDATE sandboxes SET spec = json_set(spec, '$.Checkouts', json((
	SELECT json_group_array(json_object(
		'ID', c.id, 'Name', c.name, 'State', c.state, 'Reason', c.reason,
		'Repository', json_extract(c.spec, '$.Repository'), 'Place', json_extract(c.spec, '$.Place'),
		'WorkDir', json_extract(c.spec, '$.WorkDir'), 'Labels', json_extract(c.spec, '$.Labels'),
		'CreatedAt', strftime('%Y-%m-%dT%H:%M:%S', c.created_at / 1000000, 'unixepoch') || printf('.%06dZ', c.created_at % 1000000),
		'LastUsedAt', strftime('%Y-%m-%dT%H:%M:%S', c.last_used_at / 1000000, 'unixepoch') || printf('.%06dZ', c.last_used_at % 1000000)
	) ORDER BY c.seq)
	FROM sandboxes c WHERE json_extract(c.spec, '$.Within') = sandboxes.id
)))
WHERE coalesce(json_extract(spec, '$.Shared'), '') <> '';

-- One whose sandbox is gone was to be removed; its workspace remains, as an orphan.
DELETE FROM sandboxes WHERE coalesce(json_extract(spec, '$.Within'), '') <> '';

CREATE VIEW checkouts AS
	SELECT json_extract(c.value, '$.ID') AS id, json_extract(c.value, '$.Name') AS name, s.client AS client
	FROM sandboxes s, json_each(s.spec, '$.Checkouts') c
	WHERE json_type(s.spec, '$.Checkouts') = 'array';

PRAGMA user_version = 10;
