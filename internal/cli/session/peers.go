package session

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/pattern"
)

// Peers are all backends that have executions now: the server that was named,
// or every process of Cove on this machine that shares the run directory.
func (sess *Session) Peers(ctx context.Context) ([]*Backend, error) {
	if address := sess.ServerAddress(); address != "" {
		b, err := sess.Dial(address)
		if err != nil {
			return nil, err
		}
		return []*Backend{b}, nil
	}
	if err := Here(); err != nil {
		return nil, err
	}
	cfg, err := sess.Config()
	if err != nil {
		return nil, err
	}
	var all []*Backend
	for _, path := range liveSockets(ctx, cfg.RunDir) {
		b, err := sess.Dial("unix:" + path)
		if err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	return all, nil
}

// ReadRecords asks a backend that can read the records: the server that was named, else a process that lives, else a
// daemon in this process. They share one store, so when one ends meanwhile the next is asked.
func (sess *Session) ReadRecords(ctx context.Context, ask func(*client.Client) error) error {
	peers, err := sess.Peers(ctx)
	if err != nil {
		return err
	}
	asked := false
	for _, p := range peers {
		if !asked {
			err = ask(p.Client)
			asked = !cove.Away(err)
		}
		p.Close()
	}
	if asked || sess.ServerAddress() != "" {
		return err
	}
	b, err := embed(ctx, sess, false)
	if err != nil {
		return err
	}
	err = ask(b.Client)
	return cmp.Or(err, b.Close())
}

// NotHere reports an answer that another process may give differently.
func NotHere(err error) bool {
	code := cove.ErrorCode(err)
	return code == cove.NotFound || code == cove.Conflict || cove.Away(err)
}

// AskRunner asks one peer after the other; only the one that runs the execution can do it.
func AskRunner(peers []*Backend, id string, do func(*client.Client) error) error {
	var last error = cove.Errorf(cove.NotFound, "no running execution has the id %s", id).WithHint("see \"cove ps\"")
	for _, p := range peers {
		err := do(p.Client)
		if err == nil {
			return nil
		}
		if cove.ErrorCode(last) == cove.NotFound {
			last = err
		}
		if !NotHere(err) {
			return err
		}
	}
	return last
}

// Collect asks every peer for records and merges them by id, in the order of their first appearance. Peers share one
// store, so a peer that has just ended is no error while another answers.
func Collect[T any](peers []*Backend, id func(T) string, list func(*client.Client) ([]T, error)) ([]T, error) {
	all, at := []T{}, map[string]int{}
	var failed error
	answered := false
	for _, p := range peers {
		page, err := list(p.Client)
		if err != nil {
			failed = err
			continue
		}
		answered = true
		for _, r := range page {
			if i, known := at[id(r)]; known {
				all[i] = r
				continue
			}
			at[id(r)] = len(all)
			all = append(all, r)
		}
	}
	if !answered && failed != nil {
		return nil, failed
	}
	return all, nil
}

// ExecutionIDs returns the ids of executions that are given whole, or by a beginning that no other of the newest ones
// has. Errors: InvalidArgument, NotFound.
func ExecutionIDs(ctx context.Context, sess *Session, given ...string) ([]string, error) {
	var known []api.Execution
	ids := slices.Clone(given)
	for i, id := range given {
		if _, err := cove.ParseExecutionID(id); err == nil {
			continue
		}
		if !executionPrefix.MatchString(id) {
			return nil, cove.Errorf(cove.InvalidArgument, "%.64q is not the id of an execution", id).
				WithHint("\"cove ps -a\" lists them")
		}
		if known == nil {
			var err error
			if known, err = OfRecords(ctx, sess, newestExecutions); err != nil {
				return nil, err
			}
		}
		whole, err := wholeID(known, id)
		if err != nil {
			return nil, err
		}
		ids[i] = whole
	}
	return ids, nil
}

// executionPrefix matches the beginning of an execution's id: at least four of its own characters.
var executionPrefix = pattern.New(`^ex_[0-9a-z]{4,25}$`)

// newestExecutions returns the executions among which a beginning of an id is looked for.
func newestExecutions(c *client.Client, ctx context.Context) ([]api.Execution, error) {
	const most = 1000
	return UpTo(most, func(cursor string, n int) ([]api.Execution, string, error) {
		page, err := c.List(ctx, client.ListOptions{Cursor: cursor, Limit: n})
		return page.Executions, page.NextCursor, err
	})
}

// wholeID returns the id of the only execution that begins so.
func wholeID(all []api.Execution, beginning string) (string, error) {
	var found []string
	for _, e := range all {
		if strings.HasPrefix(e.ID, beginning) {
			found = append(found, e.ID)
		}
	}
	switch len(found) {
	case 0:
		return "", cove.Errorf(cove.NotFound, "there is no execution %.64q", beginning).WithHint("\"cove ps -a\" lists them")
	case 1:
		return found[0], nil
	}
	return "", cove.Errorf(cove.InvalidArgument, "%.64q is the beginning of %d executions", beginning, len(found)).
		WithHint("say more of the id: %s", strings.Join(found[:min(len(found), 3)], ", "))
}

// CloseAll closes backends.
func CloseAll(peers []*Backend) {
	for _, p := range peers {
		p.Close()
	}
}

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

// OfRecords returns an answer that ReadRecords has found.
func OfRecords[T any](ctx context.Context, sess *Session, ask Ask[T]) (answer T, err error) {
	do := keep(ask, &answer)
	err = sess.ReadRecords(ctx, func(c *client.Client) error { return do(ctx, c) })
	return answer, err
}
