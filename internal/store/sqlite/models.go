package sqlite

import (
	"context"

	"github.com/cove-sandbox/cove/internal/egress/model"
)

// ModelsUsed implements store.Store.
func (s *Store) ModelsUsed(ctx context.Context, client string) (all []model.ProviderUsage, err error) {
	rows, err := s.read.QueryContext(ctx, `SELECT provider, requests, input, output, cache_read, cache_write, cost,
		estimated FROM models_used WHERE client = ? ORDER BY provider`, client)
	if err != nil {
		return nil, s.fault("read", err)
	}
	defer rows.Close()
	for rows.Next() {
		var u model.ProviderUsage
		if err := rows.Scan(&u.Provider, &u.Requests, &u.Input, &u.Output, &u.CacheRead, &u.CacheWrite, &u.Cost,
			&u.Estimated); err != nil {
			return nil, s.fault("read", err)
		}
		all = append(all, u)
	}
	return all, s.fault("read", rows.Err())
}

// UseModels implements store.Store.
func (s *Store) UseModels(ctx context.Context, client string, used ...model.ProviderUsage) error {
	record := s.change
	if model.Sum(used).Requests == 0 {
		record = s.settle
	}
	return record(ctx, func(tx *tx) error {
		for _, u := range used {
			if _, err := tx.ExecContext(ctx, `INSERT INTO models_used (client, provider, requests, input, output, cache_read,
				cache_write, cost, estimated) VALUES (?,?,?,?,?,?,?,?,?)
				ON CONFLICT (client, provider) DO UPDATE SET requests = requests + excluded.requests,
				input = input + excluded.input, output = output + excluded.output,
				cache_read = cache_read + excluded.cache_read, cache_write = cache_write + excluded.cache_write,
				cost = cost + excluded.cost, estimated = estimated + excluded.estimated`, client, u.Provider, u.Requests,
				u.Input, u.Output, u.CacheRead, u.CacheWrite, u.Cost, u.Estimated); err != nil {
				return err
			}
		}
		return nil
	})
}
