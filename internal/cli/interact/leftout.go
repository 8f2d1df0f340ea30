package interact

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/git/folder"
)

const (
	// patience is how long a command whose sandbox is ready waits for what its checkout lacks.
	patience = 3 * time.Second
	// mostLook is how long the directory is looked at, and mostEntries how many ignored files are measured.
	mostLook    = 10 * time.Second
	mostEntries = 100_000
	// mostNamed is how many ignored directories and files are named.
	mostNamed = 4
)

// LeftOut finds out what a checkout of a directory of this machine lacks, while the sandbox is being made.
type LeftOut struct {
	once  sync.Once
	asked api.RepositoryRequest
	ready chan struct{} // closed when the rest is there; nil before Look, and where there is nothing to look at

	standing folder.Standing
	ignored  []measured
	err      error
}

// measured is an ignored directory or file.
type measured struct {
	name    string
	size    int64 // bytes
	partial bool  // there is more
}

// Look begins to look, the first time that it is called. Nothing is looked at without a directory of this machine.
func (l *LeftOut) Look(ctx context.Context, asked *api.RepositoryRequest) {
	l.once.Do(func() {
		if asked == nil || !filepath.IsAbs(asked.Source) {
			return
		}
		l.asked, l.ready = *asked, make(chan struct{})
		ctx, cancel := context.WithTimeout(ctx, mostLook)
		go func() {
			defer cancel()
			defer close(l.ready)
			l.standing, l.err = folder.Stand(ctx, asked.Source)
			switch {
			case l.err == nil:
				l.ignored = measure(ctx, l.standing.Top, l.standing.Ignored)
			case ctx.Err() != nil: // git was ended, which its error need not say
				l.err = ctx.Err()
			}
		}()
	})
}

// Ignored returns the ignored paths of a directory that are copied: the flag's, or those of a profile that are there.
func Ignored(ctx context.Context, sess *session.Session, profile, dir string, flag []string) ([]string, error) {
	if len(flag) > 0 || profile == "" || !filepath.IsAbs(dir) || sess.Far() {
		return flag, nil
	}
	p, err := profileOf(ctx, sess, profile)
	if err != nil || len(p.WithIgnored) == 0 {
		return nil, err
	}
	st, err := folder.Stand(ctx, dir)
	if err != nil {
		return nil, nil // making the sandbox tells what is wrong with it
	}
	return slices.DeleteFunc(slices.Clone(p.WithIgnored), func(name string) bool {
		return !st.Ignores(path.Clean(filepath.ToSlash(name)))
	}), nil
}

// Await waits until everything is found, or ctx ends.
func (l *LeftOut) Await(ctx context.Context) {
	if l.ready == nil {
		return
	}
	select {
	case <-l.ready:
	case <-ctx.Done():
	}
}

// Lines returns messages about what the checkout lacks, and waits 3 s for them at most. There are none about a
// directory that cannot be read: making the sandbox tells what is wrong with it. Without time to look there is one that
// says so. made is nil where it is not known.
func (l *LeftOut) Lines(made *api.SandboxRepository) []string {
	if l.ready == nil {
		return nil
	}
	if clock.Await(context.Background(), l.ready, time.After(patience)) != nil {
		return []string{unseen(l.asked)}
	}
	switch {
	case errors.Is(l.err, context.DeadlineExceeded):
		return []string{unseen(l.asked)}
	case l.err != nil:
		return nil
	}
	return lines(l.standing, l.ignored, l.asked, made)
}

// unseen says that what a checkout lacks is not known.
func unseen(asked api.RepositoryRequest) string {
	kinds := "changed, untracked and ignored files, which are not taken"
	if asked.Uncommitted {
		kinds = "ignored files, which are left out"
	}
	return "there was no time to look for " + kinds + " (git status --ignored shows them)"
}

// lines describes what a checkout lacks. made is nil where its beginning is not known.
func lines(standing folder.Standing, ignored []measured, asked api.RepositoryRequest,
	made *api.SandboxRepository) []string {
	var all []string
	if !asked.Uncommitted {
		files := func(n int, kind string) {
			if n > 0 {
				all = append(all, fmt.Sprintf("%s %s not taken (--uncommitted takes %s)", ui.Counted(n, kind+" file",
					kind+" files"), plural(n, "is", "are"), plural(n, "it", "them")))
			}
		}
		files(standing.Changed, "changed")
		files(standing.Untracked, "untracked")
	}
	switch {
	case made == nil || asked.From != "":
	case made.Base == "":
		all = append(all, "the repository is empty: the branch "+made.Branch+" begins with nothing")
	case standing.Detached != "":
		all = append(all, fmt.Sprintf("HEAD is detached at %.7s; the sandbox begins at %s", standing.Detached,
			cmp.Or(made.From, made.Base[:min(len(made.Base), 7)])))
	}
	left := slices.DeleteFunc(slices.Clone(ignored), func(m measured) bool {
		return slices.ContainsFunc(asked.Ignored, func(taken string) bool {
			return path.Clean(taken) == path.Clean(m.name)
		})
	})
	if text := ignoredText(left); text != "" {
		all = append(all, "left out because ignored: "+text+"; --with-ignored PATH takes one")
	}
	return all
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// ignoredText names the largest ones, and counts the rest.
func ignoredText(all []measured) string {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b measured) int { return cmp.Compare(b.size, a.size) })
	var parts []string
	for _, m := range all[:min(len(all), mostNamed)] {
		parts = append(parts, m.name+" ("+m.text()+")")
	}
	if len(all) > mostNamed {
		var rest measured
		for _, m := range all[mostNamed:] {
			rest.size, rest.partial = rest.size+m.size, rest.partial || m.partial
		}
		parts = append(parts, fmt.Sprintf("%d more (%s)", len(all)-mostNamed, rest.text()))
	}
	return strings.Join(parts, ", ")
}

func (m measured) text() string {
	if m.partial {
		return "over " + ui.SizeText(m.size)
	}
	return ui.SizeText(m.size)
}

// measure returns the sizes of files and directories below top, as far as the context and mostEntries let it.
func measure(ctx context.Context, top string, names []string) []measured {
	var all []measured
	left := mostEntries
	for _, name := range names {
		m := measured{name: strings.TrimSuffix(name, "/")}
		err := filepath.WalkDir(filepath.Join(top, m.name), func(_ string, d fs.DirEntry, err error) error {
			if left--; left < 0 || ctx.Err() != nil {
				m.partial = true
				return fs.SkipAll
			}
			if err != nil {
				m.partial = true
				return nil
			}
			if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
				m.size += info.Size()
			}
			return nil
		})
		m.partial = m.partial || err != nil
		all = append(all, m)
	}
	return all
}
