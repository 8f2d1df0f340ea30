//go:build linux

// Package hidden owns git for a sandbox whose repository is not inside, as a
// whole: what the sandbox is shown so that its git finds the git API, the
// sandbox's key, and the API with what runs its commands.
package hidden

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/atomicfile"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/git/companion"
	"github.com/cove-sandbox/cove/internal/git/gitapi"
	"github.com/cove-sandbox/cove/internal/git/wire"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/hostpath"
)

// Options are what git of one sandbox is made of.
type Options struct {
	companion.Options        // its Dir is for all of this
	Guest             string // the cove-guest binary
	Audit             func(gitapi.Event)
}

// Service is git of one sandbox.
type Service struct {
	dir       string
	companion *companion.Companion
	api       *gitapi.Server
	log       *slog.Logger
}

// Open makes it, or opens what another process of Cove has made in the same
// directory: the sandbox's key stays what it is until the directory is removed,
// with the sandbox. Errors: InvalidArgument, StorageFull, Unsupported.
func Open(ctx context.Context, o Options) (*Service, error) {
	s := &Service{dir: o.Dir, log: o.Log}
	key, err := s.place(o.Guest)
	if err != nil {
		return nil, cove.Errorf(cove.StorageFull, "make git for a sandbox: %w", err)
	}
	o.Options.Dir = s.in("companion")
	if s.companion, err = companion.New(ctx, o.Options); err != nil {
		return nil, err
	}
	s.api, err = gitapi.New(gitapi.Options{Key: key, Runner: s.companion, Clock: o.Clock, Log: o.Log, Audit: o.Audit})
	return s, err
}

func (s *Service) in(name string) string { return filepath.Join(s.dir, name) }

// place writes what the sandbox is shown: its key, which only its user may
// read, the program, and a file that hides where the repository is.
func (s *Service) place(program string) (key []byte, err error) {
	shown := s.in("shown")
	if err := os.MkdirAll(filepath.Join(shown, "bin"), 0o755); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(shown, "key"))
	if err == nil {
		if key, err = hex.DecodeString(strings.TrimSpace(string(text))); err == nil && len(key) != wire.KeySize {
			err = errors.New("the key is not one")
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		key = make([]byte, wire.KeySize)
		rand.Read(key)
		err = atomicfile.Write(filepath.Join(shown, "key"), []byte(hex.EncodeToString(key)+"\n"), 0o400)
	}
	if err != nil {
		return nil, err
	}
	if err := copyProgram(program, filepath.Join(shown, "bin", "git")); err != nil {
		return nil, err
	}
	return key, atomicfile.Write(s.in("nothing"), nil, 0o444)
}

// copyProgram copies one in the place of one of an earlier version. The one
// that a living sandbox runs stays as it is.
func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	temporary := to + ".new"
	out, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Close(), os.Chmod(temporary, 0o755)); err != nil {
		return err
	}
	return os.Rename(temporary, to)
}

// Bind adds to a binding what the sandbox is shown, but for the listener. The
// caller closes the binding, also on error. Errors: those of hostpath.Own.
func (s *Service) Bind(b *engine.Binding) error {
	if err := b.Attach(hostpath.Own{Dir: s.dir, Name: "shown"}, engine.Attachment{Target: wire.Place, ReadOnly: true}); err != nil {
		return err
	}
	return b.Show(hostpath.Own{Dir: s.dir, Name: "nothing"}, engine.File{Target: cove.Workspace + "/.git"})
}

// Listen is the socket in the sandbox that Serve has to be given.
func (*Service) Listen() guest.Listen {
	return guest.Listen{Network: "tcp4", Address: "127.0.0.1:" + strconv.Itoa(wire.Port)}
}

// Programs is the directory inside that has git, to be the first of PATH.
func (*Service) Programs() string { return wire.Programs }

// Serve serves until ctx ends, and then waits for what runs. It closes ln, and
// the service with it.
func (s *Service) Serve(ctx context.Context, ln net.Listener) {
	if err := s.api.Serve(ctx, ln); err != nil {
		s.log.Error("git of a sandbox has ended", "error", err)
	}
	s.Close()
}

// Snapshot puts what is not committed where ref leads, as a commit.
func (s *Service) Snapshot(ctx context.Context, ref string) error {
	return s.companion.Snapshot(ctx, ref)
}

// Send starts "git upload-pack" on the repository. asIs has it send objects as
// they are, and not as differences to others. done lets go of what it runs in,
// once it has ended.
func (s *Service) Send(ctx context.Context, asIs bool) (p *process.Process, done func(), err error) {
	return s.companion.Send(ctx, asIs)
}

// Close ends what runs, where nobody serves.
func (s *Service) Close() {
	if err := s.companion.Close(); err != nil {
		s.log.Error("the companion of a sandbox cannot be removed", "error", err)
	}
}
