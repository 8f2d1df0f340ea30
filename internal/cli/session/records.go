package session

import (
	"context"
	"slices"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
)

// pageSize is how many records are asked for at once.
const pageSize = 100

// UpTo reads page after page, until there are limit records or no more.
func UpTo[T any](limit int, page func(cursor string, limit int) (records []T, next string, err error)) ([]T, error) {
	all := []T{}
	for cursor := ""; ; {
		records, next, err := page(cursor, min(pageSize, limit-len(all)))
		if err != nil {
			return nil, err
		}
		all = append(all, records...)
		if cursor = next; cursor == "" || len(all) >= limit {
			return all, nil
		}
	}
}

// DecisionsUpTo are the newest, oldest first.
func DecisionsUpTo(ctx context.Context, c *client.Client, q client.DecisionOptions, limit int) ([]api.Decision, error) {
	all, err := UpTo(limit, func(cursor string, n int) ([]api.Decision, string, error) {
		q.Cursor, q.Limit = cursor, n
		page, err := c.Decisions(ctx, q)
		return page.Decisions, page.NextCursor, err
	})
	slices.Reverse(all)
	return all, err
}

// OfRecords is what ReadRecords answers.
func OfRecords[T any](ctx context.Context, sess *Session, ask func(*client.Client, context.Context) (T, error)) (answer T, err error) {
	err = sess.ReadRecords(ctx, func(c *client.Client) (err error) {
		answer, err = ask(c, ctx)
		return err
	})
	return answer, err
}
