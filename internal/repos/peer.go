package repos

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/git/folder"
	"github.com/cove-sandbox/cove/internal/hostgit"
)

// peer runs a git that talks to another repository, whose address precedes the run's other arguments. held are locks
// for it to inherit.
type peer func(ctx context.Context, held []*os.File, r hostgit.Run) ([]byte, error)

// remote is a repository that can be mirrored.
type remote struct {
	Source
	git string         // git directory of a repository on this machine
	own string         // that of the checkout around the directory: git, but in a linked worktree
	who cove.Principal // the requester
	// borrowed are directories of objects outside the store that a repository of this machine reads, too.
	borrowed []string
	// promisor is the address of what a partial clone of this machine lacks; empty for others, and where Cove reaches
	// none.
	promisor string
}

// find parses a source, and checks it if it is a directory. Errors: those of ParseSource, NotFound.
func (s *Store) find(ctx context.Context, who cove.Principal, source string) (remote, error) {
	src, err := ParseSource(who, source)
	if err != nil {
		return remote{}, err
	}
	if src.Dir == "" {
		return remote{Source: src, who: who}, nil
	}
	r := remote{Source: src, who: who}
	if r.git, r.own, err = folder.GitDirectories(src.Dir); err != nil {
		return remote{}, err
	}
	if r.borrowed, err = s.checkObjects(r.git); err != nil {
		return remote{}, err
	}
	if r.promisor, err = promisor(ctx, r); err != nil {
		return remote{}, err
	}
	r.Key = keyOfDirectory(r.git)
	return r, nil
}

// origin returns the address for pushes of a repository's sandboxes; empty if there is none.
func origin(ctx context.Context, r remote) (string, error) {
	if r.git == "" {
		return r.URL, nil
	}
	url, err := Origin(ctx, r.git)
	if cove.ErrorCode(err) == cove.Conflict {
		return "", nil
	}
	return url, err
}

// Origin returns the address that a sandbox of the repository around a directory of this machine pushes to. Errors:
// NotFound, Forbidden; Conflict when the repository has no remote "origin", or none that a sandbox can push to.
func Origin(ctx context.Context, dir string) (string, error) {
	common, err := folder.GitDirectory(dir)
	if err != nil {
		return "", err
	}
	git, err := hostgit.Find()
	if err != nil {
		return "", err
	}
	origin, err := git.Line(ctx, hostgit.Run{Dir: common, Command: []string{"config"}, Flags: []string{"--get"},
		Args: []string{"remote.origin.url"}})
	if err != nil && hostgit.ExitCode(err) != 1 { // 1: there is none
		return "", err
	}
	if origin == "" {
		return "", cove.Errorf(cove.Conflict, "the repository %s has no remote \"origin\" to push to", dir).
			WithHint("add it: git -C %s remote add origin https://HOST/OWNER/REPO.git", dir)
	}
	url := pushAddress(origin)
	if url == "" { // not repeated: an address may have a password
		return "", cove.Errorf(cove.Conflict,
			"the remote \"origin\" of the repository %s is no address that a sandbox can push to", dir).
			WithHint("a path, this machine, or a password in the address, is none: "+
				"git -C %s remote set-url origin https://HOST/OWNER/REPO.git", dir)
	}
	return url, nil
}

// pushAddress returns the address at which sandboxes push to the origin of a directory; empty for a path, for what no
// rule can open, such as the loopback of the directory's machine, and for an address with a password.
func pushAddress(origin string) string {
	src, err := ParseSource(cove.Principal{}, origin)
	if err != nil {
		return ""
	}
	r, err := policy.ParseRemote(src.URL)
	if err != nil || r.Host.Closed() {
		return ""
	}
	return src.URL
}

// isPartialClone reports whether git may fetch missing objects of a repository of this machine from where it was cloned
// from, or those of one that it borrows from.
func (r remote) isPartialClone() bool {
	if r.git == "" {
		return false
	}
	for _, objects := range append([]string{filepath.Join(r.git, "objects")}, r.borrowed...) {
		packs, err := filepath.Glob(filepath.Join(objects, "pack/*.promisor"))
		if err == nil && len(packs) > 0 {
			return true
		}
	}
	return false
}

// promisor returns the address at which Cove fetches what a partial clone of this machine lacks: that of its origin.
// It is empty for any other repository, and where its origin is none, or is no address that a sandbox reaches.
func promisor(ctx context.Context, r remote) (string, error) {
	if !r.isPartialClone() {
		return "", nil
	}
	g, err := hostgit.Find()
	if err != nil {
		return "", err
	}
	out, err := g.Output(ctx, hostgit.Run{Dir: r.git, Command: []string{"config"}, Flags: []string{"--get-regexp"},
		Args: []string{`^(remote\.origin\.promisor|extensions\.partialclone)$`}})
	if err != nil && hostgit.ExitCode(err) != 1 { // 1: there is none
		return "", err
	}
	is := func(line string) bool { return slices.Contains(strings.Split(string(out), "\n"), line) }
	if !is("remote.origin.promisor true") && !is("extensions.partialclone origin") {
		return "", nil
	}
	return origin(ctx, r)
}

// dial returns the peer for a remote. Errors: those of Outlet.Open.
func (s *Store) dial(ctx context.Context, r remote, push bool) (peer, func() error, error) {
	if r.git != "" {
		return s.neighbour(r.git), func() error { return nil }, nil
	}
	return s.dialBy(ctx, s.o.Outlet, r, push)
}

func (s *Store) dialBy(ctx context.Context, outlet Outlet, r remote, push bool) (peer, func() error, error) {
	if outlet == nil {
		return nil, nil, cove.Errorf(cove.Unavailable, "there is no way to %s", r.URL)
	}
	route, err := outlet.Open(ctx, r.who, r.URL, push)
	if err != nil {
		return nil, nil, err
	}
	settings := []hostgit.Setting{{Key: "http.proxy", Value: route.Proxy}, {Key: "http.proxyAuthMethod", Value: "basic"}}
	if route.CA != "" {
		settings = append(settings, hostgit.Setting{Key: "http.sslCAInfo", Value: route.CA})
	}
	scheme, _, _ := strings.Cut(r.URL, ":")
	return func(ctx context.Context, held []*os.File, run hostgit.Run) ([]byte, error) {
		run.Args = slices.Concat([]string{r.URL}, run.Args)
		run.Settings = slices.Concat(settings, run.Settings)
		run.Transport = []string{scheme}
		out, err := s.git(ctx, held, run)
		if hint := reachHint(r.URL, err); hint != "" && !push {
			err = cove.Errorf(cove.ErrorCode(err), "%w", err).WithHint("%s", hint)
		}
		return out, err
	}, route.Close, nil
}

// reachHint returns what to check where git cannot read a remote; empty for other failures, and where a hint is known.
func reachHint(address string, err error) string {
	if cove.ErrorHint(err) != "" {
		return ""
	}
	switch cove.ErrorCode(err) {
	case cove.NotFound:
		return "check its spelling; a private one may be hidden from an account that cannot read it: " + seeAccounts
	case cove.Forbidden: // forges give no answer to strangers about what does not exist, either
		return "check its spelling, and that the account on this machine may read it: " + seeAccounts
	case cove.Unavailable:
		text := strings.ReplaceAll(err.Error(), strings.TrimSuffix(address, "/"), "") // its words are no reason
		if strings.Contains(text, "certificate") || strings.Contains(text, "SSL") {
			return "check that this machine trusts its certificate, and that nothing on the way replaces it"
		}
		if u, err := url.Parse(address); err == nil {
			return "check the spelling of the host, and that this machine reaches it: curl -I " + u.Scheme + "://" + u.Host
		}
	}
	return ""
}

const seeAccounts = `"cove credentials check" shows the keys that there are`

// neighbour returns the peer for a repository of this machine: another git reads it, without the repository's
// configuration.
func (s *Store) neighbour(dir string) peer {
	return func(ctx context.Context, held []*os.File, run hostgit.Run) ([]byte, error) {
		ours, theirs, err := socketPair()
		if err != nil {
			return nil, err
		}
		defer theirs.Close()
		// the child has its own copy; ours would keep the connection open after its end
		begun := sync.OnceFunc(func() { ours.Close() })
		ctx, cancel := context.WithCancel(ctx)
		served := make(chan error, 1)
		go func() {
			_, err := s.git(ctx, held, hostgit.Run{
				Command: []string{"upload-pack"}, Flags: []string{"--strict"}, Args: []string{dir}, Stdin: ours, Stdout: ours,
				Started: begun,
				// The owner does not matter: nothing in the repository is executed.
				Settings: []hostgit.Setting{{Key: "safe.directory", Value: "*"}}, Env: []string{"GIT_PROTOCOL=version=2"},
			})
			begun()
			served <- err
		}()
		out, err := s.overDescriptor(ctx, held, run, theirs)
		cancel()
		if why := <-served; err != nil && cove.ErrorCode(why) != cove.Canceled {
			err = errors.Join(err, why)
		}
		return out, err
	}
}

// listNeighbour returns the refs of a repository of this machine, as listRemote does, and what the checkout of the git
// directory dir has checked out.
func (s *Store) listNeighbour(ctx context.Context, held []*os.File, dir string) (advert, error) {
	out, err := s.git(ctx, held, hostgit.Run{Dir: dir, Command: []string{"for-each-ref"}, Flags: []string{
		"--format=%(if)%(HEAD)%(then)ref: %(refname)%09HEAD%0a%(end)%(objectname)%09%(refname)",
	}})
	if err != nil {
		return advert{}, err
	}
	a, err := parseAdvert(string(out))
	if err != nil || a.head != "" {
		return a, err
	}
	a.detached, err = s.line(ctx, held, hostgit.Run{Dir: dir, Command: []string{"rev-parse"},
		Flags: []string{"--verify", "--quiet"}, Args: []string{"HEAD^{commit}"}})
	if hostgit.ExitCode(err) > 0 {
		return a, nil // its branch is unborn
	}
	return a, err
}

// stream is the address of the connection at the first descriptor that git inherits (git-remote-fd(1)).
const stream = "fd::3"

// overDescriptor runs a git that talks over a socket.
func (s *Store) overDescriptor(ctx context.Context, held []*os.File, run hostgit.Run, socket *os.File) ([]byte, error) {
	run.Args = slices.Concat([]string{stream}, run.Args)
	run.Transport = []string{"fd"}
	run.Files = []*os.File{socket}
	return s.git(ctx, held, run)
}

func socketPair() (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "git"), os.NewFile(uintptr(fds[1]), "git"), nil
}

// Stream is a connection to a program in a sandbox.
type Stream interface {
	io.ReadWriteCloser // Close ends the program
	CloseWrite() error // ends the program's input
}

// Connect starts "git upload-pack" on a sandbox's repository, inside, and returns its stream. With asIs, objects are
// sent whole, not as differences to objects that are not sent.
type Connect func(ctx context.Context, asIs bool) (Stream, error)

// stranger returns the peer for a repository in a sandbox: every byte of it is hostile, and at most limit bytes are
// read. over is the error of more.
func (s *Store) stranger(connect Connect, limit int64, over error, asIs bool) peer {
	return func(ctx context.Context, held []*os.File, run hostgit.Run) ([]byte, error) {
		inside, err := connect(ctx, asIs)
		if err != nil {
			return nil, err
		}
		defer inside.Close()
		file, theirs, err := socketPair()
		if err != nil {
			return nil, err
		}
		defer theirs.Close()
		conn, err := net.FileConn(file)
		file.Close()
		if err != nil {
			return nil, err
		}
		ours := conn.(*net.UnixConn)
		defer ours.Close()
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		var pumps sync.WaitGroup
		run.Started = func() {
			pumps.Go(func() {
				n, _ := io.Copy(ours, io.LimitReader(inside, limit+1))
				if n > limit {
					cancel(errTooLarge)
				}
				ours.CloseWrite()
			})
			pumps.Go(func() {
				io.Copy(inside, ours)
				inside.CloseWrite()
			})
		}
		out, err := s.overDescriptor(ctx, held, run, theirs)
		inside.Close()
		theirs.Close()
		ours.Close()
		pumps.Wait()
		if errors.Is(context.Cause(ctx), errTooLarge) {
			err = over
		}
		return out, err
	}
}

var errTooLarge = errors.New("too large")

// Work selects a part of the imported work.
type Work struct {
	// Ref is one of Import's refs; empty means uncommitted work if there is any, else HEAD.
	Ref   string
	Paths []string // below the root of the repository; nil is all
}
