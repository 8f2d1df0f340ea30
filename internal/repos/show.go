package repos

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/policy"
	"github.com/cove-sandbox/cove/internal/hostgit"
)

// ChangeStyle configures Changes.
type ChangeStyle struct {
	Renames bool // report a renamed file as one change
	Patches bool // with patches
}

const (
	maxChanges = 20_000
	maxCommits = 10_000
	maxPatches = 32 << 20 // bytes of patches in a list
	maxWords   = 64 << 20 // bytes of commit messages in a list
)

// Changes returns the changes of imported work, by path. Errors: NotFound, TooLarge.
func (s *Store) Changes(ctx context.Context, id cove.SandboxID, w Work, style ChangeStyle) ([]Change, error) {
	sp, err := s.span(ctx, id, w)
	if err != nil {
		return nil, err
	}
	defer sp.held.Close()
	return s.changes(ctx, sp, style)
}

func (s *Store) changes(ctx context.Context, sp span, style ChangeStyle) ([]Change, error) {
	renames := "--no-renames"
	if style.Renames {
		renames = "--find-renames"
	}
	out, err := s.git(ctx, nil, hostgit.Run{Dir: sp.dir, Command: []string{"diff-tree"},
		Flags: []string{"-r", "-z", "--raw", "--numstat", renames, "--no-abbrev"},
		Args:  []string{sp.base, sp.head}, Paths: sp.paths})
	if err != nil {
		return nil, err
	}
	all, err := parseChanges(string(out))
	if err != nil {
		return nil, err
	}
	if len(all) > maxChanges {
		return nil, cove.Errorf(cove.TooLarge, "the work changes %d files; at most %d are listed", len(all),
			maxChanges).WithHint("ask for some paths of it")
	}
	if style.Patches {
		out, err := s.git(ctx, nil, hostgit.Run{Dir: sp.dir, Command: []string{"diff-tree"},
			Flags: []string{"-r", "--patch", renames, "--no-color"},
			Args:  []string{sp.base, sp.head}, Paths: sp.paths, MaxOutput: maxPatches})
		if err != nil {
			return nil, hinted(err, "ask for some paths of it, or leave out the patches")
		}
		if err := addPatches(all, string(out)); err != nil {
			return nil, err
		}
	}
	var links []string
	for _, c := range all {
		if c.New.Mode == policy.Symlink {
			links = append(links, c.New.ID)
		}
	}
	targets, err := s.contents(ctx, sp.dir, links, maxLink*int64(len(links)))
	if err != nil {
		return nil, err
	}
	for i, c := range all {
		if target, ok := targets[c.New.ID]; ok && c.New.Mode == policy.Symlink {
			all[i].Link, all[i].LinkKnown = string(target), true
		}
	}
	return all, nil
}

// hinted adds a hint to the error of work that is too large.
func hinted(err error, hint string) error {
	if cove.ErrorCode(err) == cove.TooLarge {
		return cove.Errorf(cove.TooLarge, "%w", err).WithHint("%s", hint)
	}
	return err
}

// DiffStyle configures Diff.
type DiffStyle struct {
	Stat   bool // files with line counts
	Names  bool // file names only
	Binary bool // contents of binary files, so that git can apply the text
	Color  bool
}

// Diff writes the differences of imported work. They contain the sandbox's text: a terminal needs a filter for control
// characters. Errors: NotFound, TooLarge.
func (s *Store) Diff(ctx context.Context, id cove.SandboxID, w Work, style DiffStyle, out io.Writer) error {
	sp, err := s.span(ctx, id, w)
	if err != nil {
		return err
	}
	defer sp.held.Close()
	flags := []string{"-M", "--no-color"}
	if style.Color {
		flags[1] = "--color=always"
	}
	if style.Stat {
		flags = append(flags, "--stat=100", "--summary")
	}
	if style.Names {
		flags = append(flags, "--name-only")
	}
	if style.Binary && !style.Stat && !style.Names {
		flags = append(flags, "--binary")
	}
	_, err = s.git(ctx, nil, hostgit.Run{Dir: sp.dir, Command: []string{"diff"}, Flags: flags,
		Args: []string{sp.base, sp.head}, Paths: sp.paths, Stdout: out, MaxOutput: maxShown})
	return err
}

// maxShown bounds the written differences, in bytes.
const maxShown = 256 << 20

// commits returns the revision range of committed work.
func (s *Store) commits(id cove.SandboxID, sp span) []string {
	if r, err := s.read(id); err == nil && r.Base != "" {
		return []string{r.Base + ".." + sp.head}
	}
	return []string{sp.head}
}

// Log writes the commits of imported work, newest first; like Diff it writes the sandbox's text.
func (s *Store) Log(ctx context.Context, id cove.SandboxID, w Work, short bool, out io.Writer) error {
	sp, err := s.span(ctx, id, w)
	if err != nil {
		return err
	}
	defer sp.held.Close()
	flags := []string{"--no-color", "--no-decorate"}
	if short {
		flags = append(flags, "--oneline")
	}
	_, err = s.git(ctx, nil, hostgit.Run{Dir: sp.dir, Command: []string{"log"}, Flags: flags, Args: s.commits(id, sp),
		Paths: sp.paths, Stdout: out, MaxOutput: maxShown})
	return err
}

// Person is the author or committer of a commit, as the commit states.
type Person struct {
	Name, Email string
	Time        time.Time // zero if out of range
}

// Commit is a commit of a sandbox.
type Commit struct {
	ID                string
	Parents           []string
	Author, Committer Person
	Message           string
}

// Commits returns the commits of imported work, newest first. Errors: NotFound, TooLarge.
func (s *Store) Commits(ctx context.Context, id cove.SandboxID, w Work) ([]Commit, error) {
	sp, err := s.span(ctx, id, w)
	if err != nil {
		return nil, err
	}
	defer sp.held.Close()
	out, err := s.git(ctx, nil, hostgit.Run{Dir: sp.dir, Command: []string{"log"}, Flags: []string{"-z", "--no-color",
		"--no-decorate", "--format=" + commitFormat, fmt.Sprintf("--max-count=%d", maxCommits+1)},
		Args: s.commits(id, sp), Paths: sp.paths, MaxOutput: maxWords})
	if err != nil {
		return nil, hinted(err, commitsElsewhere)
	}
	all, err := parseCommits(string(out))
	if err == nil && len(all) > maxCommits {
		err = cove.Errorf(cove.TooLarge, "there are more than %d commits", maxCommits).WithHint(commitsElsewhere)
	}
	return all, err
}

const commitsElsewhere = "look at them with git: git fetch cove::SANDBOX"

// commitFormat prints one line for each field of a commit, and then its message.
const commitFormat = "%H%n%P%n%an%n%ae%n%at%n%cn%n%ce%n%ct%n%B"

// parseCommits parses the output of "git log -z" in commitFormat. Errors: Internal for any other.
func parseCommits(out string) ([]Commit, error) {
	if out == "" {
		return nil, nil
	}
	var all []Commit
	for text := range strings.SplitSeq(strings.TrimSuffix(out, "\x00"), "\x00") {
		lines := strings.SplitN(text, "\n", 9)
		if len(lines) != 9 || !hostgit.ValidID(lines[0]) {
			return nil, cove.Errorf(cove.Internal, "git does not say what was committed")
		}
		all = append(all, Commit{ID: lines[0], Parents: strings.Fields(lines[1]),
			Author:    Person{lines[2], lines[3], calendarTime(lines[4])},
			Committer: Person{lines[5], lines[6], calendarTime(lines[7])},
			Message:   strings.TrimRight(lines[8], "\n")})
	}
	return all, nil
}

// calendarTime parses seconds since 1970, chosen by the sandbox.
func calendarTime(seconds string) time.Time {
	const end = 253_402_300_800 // of the year 9999
	if n, err := strconv.ParseInt(seconds, 10, 64); err == nil && n >= 0 && n < end {
		return time.Unix(n, 0).UTC()
	}
	return time.Time{}
}

// contents reads blobs of at most most bytes in total. Errors: TooLarge.
func (s *Store) contents(ctx context.Context, dir string, ids []string, most int64) (map[string][]byte, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	out, err := s.git(ctx, nil, hostgit.Run{Dir: dir, Command: []string{"cat-file"},
		Flags: []string{"--batch", "--buffer"}, Stdin: strings.NewReader(strings.Join(ids, "\n") + "\n"),
		MaxOutput: most + int64(len(ids))*128}) // and a line for each
	if err != nil {
		return nil, err
	}
	all := map[string][]byte{}
	for len(out) > 0 {
		line, rest, _ := bytes.Cut(out, []byte("\n"))
		parts := strings.Fields(string(line)) // id, type, size
		size := int64(-1)
		if len(parts) == 3 && parts[1] == "blob" {
			if size, err = strconv.ParseInt(parts[2], 10, 64); err != nil {
				size = -1
			}
		}
		if size < 0 || size >= int64(len(rest)) {
			return nil, cove.Errorf(cove.Corrupt, "git does not give the content of %.100q", line)
		}
		all[parts[0]], out = rest[:size], rest[size+1:] // with its newline
	}
	return all, nil
}
