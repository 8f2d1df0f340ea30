package repos

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/policy"
	"github.com/cove-sandbox/cove/internal/hostgit"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// Outlet opens routes to remotes, for git on the host. It provides credentials, which git does not have.
type Outlet interface {
	// Open opens a route to the repository at an address only, for reading or also for pushing. The
	// machine's credentials are for its owner alone. Errors: Forbidden, Unavailable.
	Open(ctx context.Context, who cove.Principal, address string, push bool) (Route, error)
}

// Route is one egress route. The zero value with a Close is a direct one.
type Route struct {
	Proxy string // address of an HTTP proxy, possibly with user and password
	CA    string // file of the trusted authorities, in place of the machine's
	Close func() error
}

// Options of a Store.
type Options struct {
	Home   string // Cove's; absolute
	Outlet Outlet
	// Shared are refs that every sandbox may read, beside tags and the well-known branches (policy.WellKnown).
	Shared []policy.Refs
	// MaxCheckout bounds the files of a checkout, in bytes; 0 is 32 GiB.
	MaxCheckout int64
	// MaxImport bounds an import, in bytes; 0 is 2 GiB.
	MaxImport int64
	// MaxMirrors bounds the mirrors of the store together, in bytes; 0 is no bound. Those that nothing uses make room.
	MaxMirrors int64
	// Tree measures what this process may not read; nil: nothing does.
	Tree Tree
	Log  *slog.Logger
}

const (
	defaultCheckout = 32 << 30
	defaultImport   = 2 << 30
	importTime      = 15 * time.Minute
	importMemory    = 4 << 30 // bytes
	importCPU       = 10 * time.Minute
)

// Store manages mirrors and workspaces below Cove's home. Several goroutines and processes may use it concurrently.
type Store struct {
	o     Options
	repos string // of mirrors
	catalog
	uploads *uploads
	disks   *disks
}

// Disks returns the disks of the workspaces.
func (s *Store) Disks() workspace.Disks { return s.disks }

// tooMuch returns the error of a checkout that is too large.
func (s *Store) tooMuch() error {
	return cove.Errorf(cove.TooLarge, "a checkout has at most %d GiB and %d files", s.o.MaxCheckout>>30,
		maxFiles).WithHint("check out a part of it: --sparse DIRECTORY")
}

const (
	maxSparse      = 256       // directories
	maxFiles       = 1_000_000 // of a checkout
	checkoutMemory = 3 << 30   // bytes, of the git process that writes it
	checkoutCPU    = 10 * time.Minute
)

var _ workspace.Workspaces = (*Store)(nil)

func (s *Store) creating() string { return filepath.Join(s.workspaces, ".creating.lock") }

// git looks git up for each run, so that a later installation is used.
func (s *Store) git(ctx context.Context, held []*os.File, r hostgit.Run) ([]byte, error) {
	g, err := hostgit.Find()
	if err != nil {
		return nil, err
	}
	r.Files = append(r.Files, held...)
	if r.Stdout != nil {
		return nil, g.Run(ctx, r)
	}
	return g.Output(ctx, r)
}

// line runs git and returns its one line.
func (s *Store) line(ctx context.Context, held []*os.File, r hostgit.Run) (string, error) {
	out, err := s.git(ctx, held, r)
	return strings.TrimSuffix(string(out), "\n"), err
}
