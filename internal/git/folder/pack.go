package folder

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/hostgit"
)

const (
	maxFiles = 1_000_000 // of what is not committed
	// maxPack bounds a pack, in bytes, as the server does.
	maxPack = 2 << 30
)

// Wanted selects a part of a folder.
type Wanted struct {
	Branch, From string // where to begin, as a sandbox of the folder would; empty is what is checked out
	Uncommitted  bool   // with the files as they are; the folder need not be a repository
	Tell         func(step string)
}

// Pack is a commit of a folder, to be sent to a server of another machine. The folder stays as it is: what the commit
// needs of its own lies in a directory of Cove's until Close.
type Pack struct {
	Commit  string
	From    string   // the branch or tag that the commit is of; may be empty
	Shallow []string // commits without parents here
	Remote  string   // address of the folder's origin; empty without one, or with a password in it

	write func(context.Context, io.Writer) error
	aside string
}

// NewPack decides what is packed of the folder dir. Errors: NotFound, Forbidden, InvalidArgument, TooLarge, Unavailable
// without git, which only a repository needs.
func NewPack(ctx context.Context, dir string, want Wanted) (p *Pack, err error) {
	common, own, err := GitDirectories(dir)
	if cove.ErrorCode(err) == cove.NotFound && want.Uncommitted {
		p = &Pack{}
		p.Commit, p.write, err = newPlain(ctx, dir)
		return p, err
	}
	if err != nil {
		return nil, err
	}
	git, err := hostgit.Find()
	if err != nil {
		return nil, err
	}
	p = &Pack{}
	if p.aside, err = os.MkdirTemp("", "cove-folder-"); err != nil {
		return nil, cannotWrite(err)
	}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	return p, p.of(ctx, git, dir, common, own, want)
}

// of fills in the pack of a repository.
func (p *Pack) of(ctx context.Context, git *hostgit.Git, dir, common, own string, want Wanted) error {
	line := func(command string, flags []string, args ...string) (string, error) {
		out, err := git.Line(ctx, hostgit.Run{Dir: own, Command: []string{command}, Flags: flags, Args: args})
		if hostgit.ExitCode(err) > 0 {
			err = nil // there is none
		}
		return out, err
	}
	format, err := line("rev-parse", []string{"--show-object-format"})
	if err != nil {
		return err
	}
	begin := []string{"HEAD"}
	switch {
	case hostgit.ValidID(want.From):
		begin = []string{want.From}
	case want.From != "":
		name := strings.TrimPrefix(want.From, "origin/")
		begin = []string{"refs/heads/" + name, "refs/tags/" + name, "refs/remotes/origin/" + name}
	case want.Branch != "":
		begin = []string{"refs/heads/" + want.Branch, "HEAD"}
	}
	at := ""
	for _, at = range begin {
		if p.Commit, err = line("rev-parse", []string{"--verify", "--quiet"}, at+"^{commit}"); err != nil || p.Commit != "" {
			break
		}
	}
	if err == nil && at == "HEAD" {
		at, err = line("symbolic-ref", []string{"--quiet"}, "HEAD")
	}
	if err != nil {
		return err
	}
	for _, prefix := range []string{"refs/heads/", "refs/tags/", "refs/remotes/origin/"} {
		if name, ok := strings.CutPrefix(at, prefix); ok && p.Commit != "" {
			p.From = name
		}
	}
	switch {
	case p.Commit == "" && want.From != "":
		return cove.Errorf(cove.NotFound, "the repository has no branch or tag %.200q", want.From).
			WithHint("give a name, or the whole id of a commit")
	case p.Commit == "" && !want.Uncommitted:
		return cove.Errorf(cove.InvalidArgument, "the repository %s has no commit", dir).
			WithHint("make one, or send its files as they are: --uncommitted")
	}
	origin, err := line("config", []string{"--get"}, "remote.origin.url")
	if err != nil {
		return err
	}
	p.Remote = sayable(origin)
	if err := p.make(ctx, git, common, format); err != nil {
		return err
	}
	objects := "GIT_ALTERNATE_OBJECT_DIRECTORIES=" + filepath.Join(common, "objects")
	if want.Uncommitted {
		top, err := Top(dir)
		if err != nil {
			return err
		}
		s := Snapshot{Top: top, Git: common, Base: p.Commit, Dir: p.repository(), Index: filepath.Join(p.aside, "index"),
			Files: maxFiles, Bytes: maxBytes, Tell: want.Tell}
		commit, err := s.Commit(ctx)
		if err != nil {
			return err
		}
		if commit != "" {
			p.Commit = commit
		}
	}
	p.write = func(ctx context.Context, to io.Writer) error {
		return explained(common, git.Run(ctx, hostgit.Run{Dir: p.repository(), Own: true, Env: []string{objects},
			Command: []string{"pack-objects"}, Flags: []string{"--revs", "--stdout", "--quiet", "--delta-base-offset"},
			Stdin: strings.NewReader(p.Commit + "\n"), Stdout: to}))
	}
	return nil
}

// explained says why a partial clone cannot be packed: git has left out what its remote has.
func explained(common string, err error) error {
	packs, e := filepath.Glob(filepath.Join(common, "objects/pack/*.promisor"))
	if hostgit.ExitCode(err) <= 0 || e != nil || len(packs) == 0 {
		return err
	}
	return cove.Errorf(cove.Unsupported, "the repository %s is a partial clone, and lacks what would be sent: %w", common,
		err).WithHint("name the address that it was cloned from, or make it whole: \"git fetch --refetch --no-filter\"")
}

func (p *Pack) repository() string { return filepath.Join(p.aside, "git") }

// make makes the repository in which git works, whose history ends where that of the folder does.
func (p *Pack) make(ctx context.Context, git *hostgit.Git, common, format string) error {
	if format == "" {
		format = "sha1" // git older than 2.25 has no other
	}
	if _, err := git.Output(ctx, hostgit.Run{Command: []string{"init"}, Flags: []string{"--bare", "--quiet", "--template=",
		"--object-format=" + format}, Args: []string{p.repository()}}); err != nil {
		return err
	}
	shallow, err := os.ReadFile(filepath.Join(common, "shallow"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(p.repository(), "shallow"), shallow, 0o600)
	}
	if err != nil {
		return cannotWrite(err)
	}
	p.Shallow = strings.Fields(string(shallow))
	return nil
}

// sayable returns an origin for a server; empty for a path, and for an address with a password, which stays here.
func sayable(origin string) string {
	if filepath.IsAbs(origin) || strings.HasPrefix(origin, ".") || strings.HasPrefix(origin, "file:") {
		return ""
	}
	if u, err := url.Parse(origin); err == nil && u.User != nil {
		if _, secret := u.User.Password(); secret {
			return ""
		}
	}
	return origin
}

// Write writes the pack. Errors: TooLarge, those of hostgit and of to.
func (p *Pack) Write(ctx context.Context, to io.Writer) error {
	return p.write(ctx, &bounded{to: to, left: maxPack})
}

// Close removes what the pack has aside.
func (p *Pack) Close() error {
	if p.aside == "" {
		return nil
	}
	return os.RemoveAll(p.aside)
}

// bounded passes on a number of bytes.
type bounded struct {
	to   io.Writer
	left int64
}

func (b *bounded) Write(data []byte) (int, error) {
	if b.left -= int64(len(data)); b.left < 0 {
		return 0, cove.Errorf(cove.TooLarge, "the folder has more than %d MiB when it is packed", maxPack>>20).
			WithHint("name what is generated in .gitignore, or push it and name the repository: OWNER/REPO or an address")
	}
	return b.to.Write(data)
}

// Name returns the name of a folder of this machine for a server of another one: file://HOST/PATH (RFC 8089).
func Name(dir string) string {
	host, _ := os.Hostname() // without one the path has to do
	path := filepath.ToSlash(dir)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // C:/Users
	}
	return (&url.URL{Scheme: "file", Host: host, Path: path}).String()
}
