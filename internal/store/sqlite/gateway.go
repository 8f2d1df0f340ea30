package sqlite

import (
	"context"
	"encoding/json"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/store"
)

// PutGatewayClient implements store.Store.
func (s *Store) PutGatewayClient(ctx context.Context, c store.GatewayClient) error {
	registration, err := json.Marshal(c.GatewayRegistration)
	if err != nil {
		return err
	}
	return s.change(ctx, func(tx *tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO gateway_clients (name, sandbox, registration, created_at) VALUES (?,?,?,?)
			ON CONFLICT (name) DO UPDATE SET sandbox = excluded.sandbox, registration = excluded.registration, created_at = excluded.created_at`,
			c.Name, string(c.Sandbox), string(registration), c.CreatedAt.UnixMicro())
		return err
	})
}

// GatewayClients implements store.Store.
func (s *Store) GatewayClients(ctx context.Context) ([]store.GatewayClient, error) {
	return readAll(ctx, s, func(r row) (c store.GatewayClient, err error) {
		var name, registration string
		var created int64
		if err := r.Scan(&name, &c.Sandbox, &registration, &created); err != nil {
			return c, err
		}
		if err := json.Unmarshal([]byte(registration), &c.GatewayRegistration); err != nil {
			return c, cove.Errorf(cove.Corrupt, "the client %q of the gateway cannot be read from %s: %w", name, s.path, err)
		}
		c.Name, c.CreatedAt = name, time.UnixMicro(created).UTC()
		return c, nil
	}, `SELECT name, sandbox, registration, created_at FROM gateway_clients ORDER BY name`)
}

// RemoveGatewayClient implements store.Store.
func (s *Store) RemoveGatewayClient(ctx context.Context, name string) error {
	return s.change(ctx, func(tx *tx) error {
		r, err := tx.ExecContext(ctx, `DELETE FROM gateway_clients WHERE name = ?`, name)
		return affected(r, err, cove.Errorf(cove.NotFound, "the gateway has no client %.64q", name))
	})
}
