//go:build linux

package gitservice

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/atomicfile"
	"github.com/cove-sandbox/cove/internal/hostgit"
)

// kept are the settings of a repository that say how its files are, or who
// works on it. They are all that is taken from its configuration.
var kept = []string{"extensions.objectformat", "core.filemode", "core.symlinks", "core.ignorecase", "core.autocrlf",
	"core.eol", "core.precomposeunicode",
	"user.name", "user.email", "merge.conflictstyle", "pull.rebase", "core.sparsecheckout", "core.sparsecheckoutcone",
	"index.sparse"}

// writeConfig writes the configuration that a companion has, and the files that
// say where its worktree is. Nothing of these is written to inside.
func (c *companion) writeConfig(ctx context.Context) error {
	w := c.o.Workspace
	admin := filepath.Join(w.Hidden, "worktrees", w.Worktree)
	text := bytes.NewBufferString("[core]\n\trepositoryformatversion = 1\n\tbare = true\n\tlogallrefupdates = " +
		"true\n[extensions]\n\tworktreeConfig = true\n")
	out, err := c.o.Git.Output(ctx, hostgit.Run{Dir: w.Hidden, Command: []string{"config"},
		Flags: []string{"--null", "--list"}})
	if err != nil {
		return err
	}
	for line := range bytes.SplitSeq(out, []byte{0}) {
		key, value, _ := strings.Cut(string(line), "\n")
		for _, k := range kept {
			if strings.EqualFold(k, key) {
				writeSetting(text, key, value)
			}
		}
	}
	if w.Remote != "" {
		writeSetting(text, "remote.origin.url", w.Remote)
		writeSetting(text, "remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*")
		writeSetting(text, "remote.pushDefault", "origin")
		writeSetting(text, "branch."+w.Branch+".remote", "origin")
		writeSetting(text, "branch."+w.Branch+".merge", "refs/heads/"+w.Branch)
	}
	// A directory that is covered inside has to exist.
	if err := os.MkdirAll(filepath.Join(c.repository(), "hooks"), 0o755); err != nil {
		return cove.Errorf(cove.StorageFull, "make a companion: %w", err)
	}
	if f, err := os.OpenFile(filepath.Join(admin, "config.worktree"), os.O_CREATE|os.O_RDONLY|syscall.O_NOFOLLOW,
		0o644); err != nil {
		return cove.Errorf(cove.StorageFull, "make a companion: %w", err)
	} else if err := f.Close(); err != nil {
		return err
	}
	files := map[string][]byte{"config": text.Bytes(), "commondir": []byte("../..\n"), "gitdir": nil,
		"config.worktree": nil}
	for _, name := range []string{"gitdir", "config.worktree"} {
		data, err := os.ReadFile(filepath.Join(admin, name))
		if err != nil && !os.IsNotExist(err) {
			return cove.Errorf(cove.Corrupt, "the worktree of sandbox %s cannot be read: %w", w.ID, err)
		}
		files[name] = data
	}
	for name, data := range files {
		if err := atomicfile.Write(c.in(name), data, 0o644); err != nil {
			return cove.Errorf(cove.StorageFull, "make a companion: %w", err)
		}
	}
	return nil
}

// repository is the git directory that a companion has, on the host.
func (c *companion) repository() string {
	if c.person != nil {
		return c.in("repository")
	}
	return c.o.Workspace.Hidden
}

// writeSetting writes one in git's syntax, whatever is in it.
func writeSetting(b *bytes.Buffer, key, value string) {
	first, last := strings.IndexByte(key, '.'), strings.LastIndexByte(key, '.')
	b.WriteString("[" + key[:first])
	if first != last {
		b.WriteString(` "` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key[first+1:last]) + `"`)
	}
	b.WriteString("]\n\t" + key[last+1:] + ` = "` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n",
		`\n`).Replace(value) + "\"\n")
}
