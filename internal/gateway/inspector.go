package gateway

import (
	"context"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/inspect"
	git "github.com/cove-sandbox/cove/internal/git/policy"
)

// Inspector looks into packs; inspect.Inspector is one.
type Inspector interface {
	Inspect(ctx context.Context, job inspect.Job) (git.Facts, error)
	// Unreachable returns the wants that are not in the history of tips.
	Unreachable(ctx context.Context, sandbox cove.SandboxID, tips, wants []string, most int64,
		server inspect.Upstream) ([]string, error)
}
