//go:build linux

// Package gitservice serves git to a sandbox whose repository stays outside: the git command inside calls an API on the
// host, which judges each command and runs it in a sandbox beside the first, the companion.
//
// # What lies where
//
// The sandbox is shown its key, the git command (package inside, which cove-guest links) and a listener. The API
// (package gitapi) accepts signed requests in the form of package wire, and package command judges them.
//
// A companion has the workspace's files, which belong to the sandbox and so to the attacker, and the git directory,
// which does not. So git there has Cove's own configuration, shown in place of the repository's; its root filesystem
// has git and no other program (root.go), and nothing in the workspace can be executed. A filter, a hook or a file
// system monitor that a repository names is not there, in whichever configuration it is named: also that of another
// repository below the workspace, which git looks into by itself. Symbolic links of the workspace lead nowhere: git
// reads them, and follows none.
//
// There are two: one without a network, and for commands that go to the remote one with an egress route of its own,
// under the sandbox's policy.
//
// # Whose repository
//
// A workspace's own repository has nothing that is not the sandbox's to see. A person's own does. Git in the companion
// never sees that one's branches: it has a repository of its own there, which borrows the person's objects read-only,
// and into which the branches that may be seen are copied before a command (person.go). Afterwards the sandbox's own
// branch is brought back, and no other; git on the host checks every object.
package gitservice

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
	"github.com/cove-sandbox/cove/internal/gitservice/internal/command"
	"github.com/cove-sandbox/cove/internal/gitservice/internal/gitapi"
	"github.com/cove-sandbox/cove/internal/gitservice/internal/wire"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/hostpath"
)

// Service is git of one sandbox.
type Service struct {
	dir       string
	companion *companion
	api       *gitapi.Server
	log       *slog.Logger
}

// Open makes it, or opens what another process of Cove has made in the same directory: the sandbox's key stays what it
// is until the directory is removed, with the sandbox. Errors: InvalidArgument, StorageFull, Unsupported.
func Open(ctx context.Context, o Options) (*Service, error) {
	s := &Service{dir: o.Dir, log: o.Log}
	key, err := s.place(o.Guest)
	if err != nil {
		return nil, cove.Errorf(cove.StorageFull, "make git for a sandbox: %w", err)
	}
	o.Dir = s.in("companion")
	if s.companion, err = newCompanion(ctx, o); err != nil {
		return nil, err
	}
	s.api, err = gitapi.New(gitapi.Options{Key: key, Runner: s.companion, Clock: o.Clock, Log: o.Log, Audit: o.audit})
	return s, err
}

// audit hands over what the record of the sandbox needs of a request.
func (o Options) audit(e gitapi.Event) {
	var err error
	if e.Code != "" {
		err = cove.Errorf(e.Code, "%s", e.Reason)
	}
	// A sandbox that asks without an end does not fill the record.
	if o.Audit != nil && e.Code != cove.Overloaded && (err != nil || e.Effect != command.Reads) {
		o.Audit(e.Args, err)
	}
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

// copyProgram copies one in the place of one of an earlier version. The one that a living sandbox runs stays as it is.
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

// Bind adds to a binding what the sandbox is shown, except the listener. The
// caller closes the binding, also on error. Errors: those of hostpath.Own.
func (s *Service) Bind(b *engine.Binding) error {
	if err := b.Attach(hostpath.Own{Dir: s.dir, Name: "shown"},
		engine.Attachment{Target: wire.Place, ReadOnly: true}); err != nil {
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

// Serve serves until ctx ends, and then waits for what runs. It closes ln, and the service with it.
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

// Send starts "git upload-pack" on the repository. asIs has it send objects as they are, and not as differences to
// others. done lets go of what it runs in, once it has ended.
func (s *Service) Send(ctx context.Context, asIs bool) (p *process.Process, done func(), err error) {
	return s.companion.Send(ctx, asIs)
}

// Close ends the running commands of a service that is not served.
func (s *Service) Close() {
	if err := s.companion.Close(); err != nil {
		s.log.Error("the companion of a sandbox cannot be removed", "error", err)
	}
}

// Context implements command.Runner.
func (c *companion) Context(ctx context.Context) (command.Context, error) {
	w := c.o.Workspace
	tags, err := c.listTags(ctx)
	return command.Context{Branch: w.Branch, Shared: w.Shared, Tags: tags, Force: c.o.Force, Terms: c.terms()}, err
}

func (c *companion) listTags(ctx context.Context) ([]string, error) {
	if c.person != nil {
		refs, err := c.person.refs(ctx)
		var tags []string
		for name := range refs {
			if tag, ok := strings.CutPrefix(name, "refs/tags/"); ok {
				tags = append(tags, tag)
			}
		}
		return tags, err
	}
	c.mu.Lock()
	tags, known := c.tags, c.known
	c.mu.Unlock()
	if known {
		return tags, nil
	}
	b, leave, err := c.enter(ctx, false)
	if err != nil {
		return nil, err
	}
	defer leave()
	out, err := b.answer(ctx, nil, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/tags")
	if err != nil {
		return nil, err
	}
	tags = strings.Fields(string(out))
	c.mu.Lock()
	c.tags, c.known = tags, true
	c.mu.Unlock()
	return tags, nil
}

// newCompanion makes what runs git for a workspace whose git directory is hidden. No
// companion is started yet. Errors: InvalidArgument, StorageFull, Unsupported.
func newCompanion(ctx context.Context, o Options) (*companion, error) {
	w := o.Workspace
	if w.Hidden == "" || w.Worktree == "" || !filepath.IsLocal(w.Worktree) || strings.ContainsRune(w.Worktree, '/') {
		return nil, cove.Errorf(cove.InvalidArgument, "git of the workspace %s is inside", w.ID)
	}
	if o.Limits == (cove.Limits{}) {
		o.Limits = cove.Limits{Memory: 2 << 30, CPUs: 2, PIDs: 64, Disk: 256 << 20, Inodes: 10_000, OpenFiles: 1024}
	}
	c := &companion{o: o, boxes: map[bool]*box{}, edits: edits{waiting: map[string]*editing{}}}
	for _, d := range []string{o.Dir, c.in("empty")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, cove.Errorf(cove.StorageFull, "make a companion: %w", err)
		}
	}
	if filepath.Dir(w.Hidden) != filepath.Dir(w.Directory) {
		var err error
		if c.person, err = newPerson(ctx, c); err != nil {
			return nil, err
		}
	}
	return c, c.writeConfig(ctx)
}
