package repos

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/hostgit"
)

// maxSent bounds sent work, in bytes.
const maxSent = 2 * maxApplied

// Send writes imported work for a client that applies it on another machine: a line with the ids of the trees that the
// sandbox began at and has come to, and a pack of what differs between them, before and after. Errors: NotFound,
// TooLarge.
func (s *Store) Send(ctx context.Context, id cove.SandboxID, out io.Writer) error {
	sp, err := s.span(ctx, id, Work{})
	if err != nil {
		return err
	}
	defer sp.held.Close()
	changed, err := s.git(ctx, nil, hostgit.Run{Dir: sp.dir, Command: []string{"diff-tree"},
		Flags: []string{"-r", "-t", "-z", "--raw", "--no-renames", "--no-abbrev"}, Args: []string{sp.base, sp.head}})
	if err != nil {
		return err
	}
	none, err := s.emptyTree(ctx, sp.dir)
	if err != nil {
		return err
	}
	var ids strings.Builder
	for _, side := range []*string{&sp.base, &sp.head} {
		*side, err = s.line(ctx, nil, hostgit.Run{Dir: sp.dir, Command: []string{"rev-parse"}, Flags: []string{"--verify"},
			Args: []string{*side + "^{tree}"}})
		if err != nil {
			return err
		}
		if *side != none { // which git knows without storing it
			ids.WriteString(*side + "\n")
		}
	}
	for field := range strings.SplitSeq(string(changed), "\x00") {
		raw, ok := strings.CutPrefix(field, ":")
		parts := strings.Fields(raw) // old mode, new mode, old id, new id, status; a path may begin with a colon, too
		if !ok || len(parts) != 5 || !hostgit.ValidID(parts[2]) || !hostgit.ValidID(parts[3]) {
			continue
		}
		for i, mode := range parts[:2] {
			if mode != "000000" && mode != "160000" { // nothing, and a submodule
				ids.WriteString(parts[2+i] + "\n")
			}
		}
	}
	if _, err := fmt.Fprintf(out, "%s %s\n", sp.base, sp.head); err != nil {
		return err
	}
	_, err = s.git(ctx, nil, hostgit.Run{Dir: sp.dir, Command: []string{"pack-objects"}, Flags: []string{"--stdout",
		"--quiet"}, Stdin: strings.NewReader(ids.String()), Stdout: out, MaxOutput: maxSent})
	return hinted(err, "look at it with cove diff, and take part of it from there")
}

// ApplySent applies work that a server of another machine has sent to a person's checkout, as Apply does. Every object
// of it is checked. Errors: those of Apply, Unavailable.
func (s *Store) ApplySent(ctx context.Context, sent io.Reader, paths []string, dir string,
	style ApplyStyle) (Applied, error) {
	for _, p := range paths {
		if !filepath.IsLocal(p) {
			return Applied{}, cove.Errorf(cove.InvalidArgument, "%.200q is no path in a repository", p)
		}
	}
	aside, err := os.MkdirTemp(s.o.Home, "applied-")
	if err != nil {
		return Applied{}, storageFull("make room for the work", err)
	}
	defer os.RemoveAll(aside)
	from := bufio.NewReader(io.LimitReader(sent, maxSent))
	line, err := from.ReadString('\n')
	base, head, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	if err != nil || !hostgit.ValidID(base) || !hostgit.ValidID(head) || len(base) != len(head) {
		return Applied{}, cove.Errorf(cove.Unavailable, "the server does not send the work of the sandbox")
	}
	sp := span{dir: filepath.Join(aside, importDir), base: base, head: head, paths: paths}
	format := formatOf(head)
	if err := emptyRepository(sp.dir, coreConfig(format, true)); err != nil {
		return Applied{}, err
	}
	if _, err := s.git(ctx, nil, hostgit.Run{Dir: sp.dir, Command: []string{"index-pack"},
		Flags: []string{"--stdin", "--fsck-objects"}, Stdin: from,
		Limits: hostgit.Limits{Memory: importMemory, FileSize: maxSent, CPU: importCPU}}); err != nil {
		return Applied{}, cove.Errorf(cove.InvalidArgument, "git refuses the work that the server sends: %w", err)
	}
	return apply(ctx, s, sp, dir, style)
}
