package repos

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/hostgit"
)

// peer runs a git that talks to another repository, whose address it puts
// before the run's other arguments. held are locks for it to inherit.
type peer func(ctx context.Context, held []*os.File, r hostgit.Run) ([]byte, error)

// remote is a repository elsewhere that there can be a mirror of.
type remote struct {
	Source
	address string // that pushes go to; empty where there is none
	git     string // git directory of one on this machine
	owner   bool   // the machine's owner asks
}

// find understands a source, and looks at it if it is a directory. Errors:
// those of ParseSource, NotFound.
func (s *Store) find(ctx context.Context, source string, owner bool) (remote, error) {
	src, err := ParseSource(source, owner)
	if err != nil {
		return remote{}, err
	}
	if src.Dir == "" {
		return remote{Source: src, address: src.URL, owner: owner}, nil
	}
	r := remote{Source: src, owner: owner}
	if r.git, err = gitDirectory(src.Dir); err != nil {
		return remote{}, err
	}
	r.Key = keyOfDirectory(r.git)
	origin, err := s.line(ctx, nil, hostgit.Run{Dir: r.git, Command: []string{"config"}, Flags: []string{"--get"}, Args: []string{"remote.origin.url"}})
	if err != nil && hostgit.ExitCode(err) != 1 { // 1: there is none
		return remote{}, err
	}
	// An origin that is a directory, or holds a password, is none for a sandbox.
	if o, err := ParseSource(origin, false); err == nil {
		r.address = o.URL
	}
	return r, nil
}

// gitDirectory finds the git directory of a repository that dir is, or lies in:
// the one that its worktrees share, without symlinks. Errors: NotFound.
func gitDirectory(dir string) (string, error) {
	none := cove.Errorf(cove.NotFound, "%s is not in a git repository", dir).WithHint(`make one with "git init", or attach the directory with --mount`)
	top, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", cove.Errorf(cove.NotFound, "there is no directory %s", dir)
	}
	for ; ; top = filepath.Dir(top) {
		if isGitDirectory(top) {
			return top, nil
		}
		git := filepath.Join(top, ".git")
		if text, err := readSmall(git); err == nil {
			target, ok := strings.CutPrefix(text, "gitdir: ")
			if !ok {
				return "", none
			}
			if git = target; !filepath.IsAbs(git) {
				git = filepath.Join(top, git)
			}
		}
		if common, err := readSmall(filepath.Join(git, "commondir")); err == nil {
			if !filepath.IsAbs(common) {
				common = filepath.Join(git, common)
			}
			git = common
		}
		if git, err := filepath.EvalSymlinks(git); err == nil && isGitDirectory(git) {
			return git, nil
		}
		if top == "/" {
			return "", none
		}
	}
}

// isGitDirectory is git's own test, but for what HEAD says.
func isGitDirectory(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, "HEAD"))
	for _, name := range []string{"objects", "refs"} {
		if fi, e := os.Stat(filepath.Join(dir, name)); err == nil && (e != nil || !fi.IsDir()) {
			return false
		}
	}
	return err == nil
}

// readSmall reads the one line of a file that points somewhere.
func readSmall(path string) (string, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !fi.Mode().IsRegular() || fi.Size() > 4096 {
		return "", errors.New("it is no small file")
	}
	data, err := os.ReadFile(path)
	return strings.TrimRight(string(data), "\r\n"), err
}

// dial opens the way to a remote. Errors: those of Outlet.Open.
func (s *Store) dial(ctx context.Context, r remote, push bool) (peer, func() error, error) {
	if r.git != "" {
		return s.neighbour(r.git), func() error { return nil }, nil
	}
	if s.o.Outlet == nil {
		return nil, nil, cove.Errorf(cove.Unavailable, "there is no way to %s", r.URL)
	}
	way, err := s.o.Outlet.Open(ctx, r.URL, r.owner, push)
	if err != nil {
		return nil, nil, err
	}
	settings := []hostgit.Setting{{Key: "http.proxy", Value: way.Proxy}, {Key: "http.proxyAuthMethod", Value: "basic"}}
	if way.CA != "" {
		settings = append(settings, hostgit.Setting{Key: "http.sslCAInfo", Value: way.CA})
	}
	scheme, _, _ := strings.Cut(r.URL, ":")
	return func(ctx context.Context, held []*os.File, run hostgit.Run) ([]byte, error) {
		run.Args = slices.Concat([]string{r.URL}, run.Args)
		run.Settings = slices.Concat(settings, run.Settings)
		run.Transport = []string{scheme}
		return s.git(ctx, held, run)
	}, way.Close, nil
}

// neighbour is a repository of this machine's: another git reads it, with a
// configuration that is not the repository's.
func (s *Store) neighbour(dir string) peer {
	return func(ctx context.Context, held []*os.File, run hostgit.Run) ([]byte, error) {
		ours, theirs, err := socketPair()
		if err != nil {
			return nil, err
		}
		defer theirs.Close()
		begun := sync.OnceFunc(func() { ours.Close() }) // it has one of its own: when it ends, ours must not keep it open
		ctx, cancel := context.WithCancel(ctx)
		served := make(chan error, 1)
		go func() {
			_, err := s.git(ctx, held, hostgit.Run{
				Command: []string{"upload-pack"}, Flags: []string{"--strict"}, Args: []string{dir}, Stdin: ours, Stdout: ours, Started: begun,
				// Whose it is does not matter: nothing of it is obeyed.
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

// overDescriptor runs a git that talks to what is at the other end of a socket.
func (s *Store) overDescriptor(ctx context.Context, held []*os.File, run hostgit.Run, socket *os.File) ([]byte, error) {
	run.Args = slices.Concat([]string{"fd::3"}, run.Args) // git-remote-fd(1): the first that it inherits
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

// Stream is a conversation with a program in a sandbox.
type Stream interface {
	io.ReadWriteCloser // Close ends the program
	CloseWrite() error // it has been told everything: its input ends
}

// Connect starts "git upload-pack" on a sandbox's repository, inside, and gives
// the stream it speaks on.
type Connect func(ctx context.Context) (Stream, error)

// stranger is a repository in a sandbox: every byte of it is hostile, and there
// are at most limit of them.
func (s *Store) stranger(connect Connect, limit int64) peer {
	return func(ctx context.Context, held []*os.File, run hostgit.Run) ([]byte, error) {
		stream, err := connect(ctx)
		if err != nil {
			return nil, err
		}
		defer stream.Close()
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
				n, _ := io.Copy(ours, io.LimitReader(stream, limit+1))
				if n > limit {
					cancel(errTooLarge)
				}
				ours.CloseWrite()
			})
			pumps.Go(func() {
				io.Copy(stream, ours)
				stream.CloseWrite()
			})
		}
		out, err := s.overDescriptor(ctx, held, run, theirs)
		stream.Close()
		theirs.Close()
		ours.Close()
		pumps.Wait()
		if errors.Is(context.Cause(ctx), errTooLarge) {
			err = cove.Errorf(cove.TooLarge, "the sandbox sends more than %d MiB", limit>>20).WithHint("take part of its work: commit less at a time")
		}
		return out, err
	}
}

var errTooLarge = errors.New("too large")
