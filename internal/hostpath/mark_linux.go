package hostpath

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/git/policy"
)

// Made searches the mount again, and says what is there now and was not when it was attached. Nothing may write to the
// mount meanwhile.
func (m Mark) Made(ctx context.Context) Made {
	made := Made{Source: m.Source}
	held, beyond, err := m.search(ctx)
	made.Deciding, made.Beyond = held.since(m.Held), beyond
	if err != nil {
		made.Beyond = "it cannot be searched: " + reason(err)
	}
	return made
}

// Kept returns the places in work of a sandbox that was kept as a directory that decide what programs of its owner run.
// Every .git in it has been written anew.
func Kept(ctx context.Context, dir string) Made {
	made := Made{Source: dir, Kept: true}
	place, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		made.Beyond = "it cannot be searched: " + reason(err)
		return made
	}
	defer place.Close()
	m := Mark{Source: dir}
	for _, f := range policy.Local {
		m.Guarded = append(m.Guarded, string(f))
	}
	held, beyond, err := m.look(ctx, place)
	held.Git = slices.DeleteFunc(held.Git, func(name string) bool { return path.Base(name) == ".git" })
	made.Deciding, made.Beyond = held.since(Deciding{}), beyond
	if err != nil {
		made.Beyond = "it cannot be searched: " + reason(err)
	}
	return made
}

func (m Mark) search(ctx context.Context) (Deciding, string, error) {
	place, err := open(m.Source)
	if err != nil {
		return Deciding{}, "", err
	}
	defer place.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(place.Fd()), &st); err != nil || st.Dev != m.Dev || st.Ino != m.Ino {
		return Deciding{}, "", errors.Join(errors.New("another directory is there now"), err)
	}
	return m.look(ctx, place)
}

// look searches an open directory.
func (m Mark) look(ctx context.Context, place *os.File) (Deciding, string, error) {
	s := searching{ended: ctx.Err, o: &Opened{Place: place}, wish: Wish{Allow: m.Allow}, guards: true, again: true,
		buffer: make([]byte, 32<<10), left: maxEntries, named: m.Named}
	fd, err := unix.Openat2(int(place.Fd()), ".", directory)
	if err == nil {
		err = s.look(fd, "", 0)
	}
	if errors.Is(err, errBound) {
		err = nil
	}
	return s.held(m.Guarded), s.beyond, err
}

// mark notes what the mount holds.
func (s *searching) mark(guarded []string) {
	s.o.Mark = &Mark{Source: s.o.Place.Name(), Dev: s.top.Dev, Ino: s.top.Ino, Allow: s.wish.Allow, Guarded: guarded,
		Named: s.named, Held: s.held(guarded)}
}

// held returns what is there of what programs of the owner execute or obey, where it is kept read-only, or would be.
func (s *searching) held(guarded []string) (d Deciding) {
	add := func(to *[]string, name string) {
		if place := s.there(name); place != "" {
			*to = append(*to, place)
		}
	}
	for _, git := range s.git {
		add(&d.Git, path.Join(".", git.name))
		if !git.file && s.wish.Allow.Git {
			for _, part := range append([]string{"rebase-merge"}, gitHooks...) { // a rebase goes on with commands in it
				add(&d.Git, path.Join(git.name, part))
			}
		}
	}
	if s.wish.Allow.Hooks {
		return d
	}
	for _, root := range append(s.roots, "") {
		for _, name := range s.expand(root, guarded) {
			add(&d.Files, name)
		}
	}
	for _, name := range s.named {
		add(&d.Files, name)
	}
	return d
}

// there returns the name of what is at a name below the mount, or of the symbolic link on the way to it, or "". What
// cannot be looked at is there.
func (s *searching) there(name string) string {
	fd, err := unix.Openat2(int(s.o.Place.Fd()), name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: directory.Resolve})
	switch {
	case err == nil:
		unix.Close(fd)
	case missing(err):
		return ""
	case errors.Is(err, unix.ELOOP) && path.Dir(name) != ".":
		return s.there(path.Dir(name))
	}
	return name
}

// passOver goes on without a directory that cannot be searched, which the search says.
func (s *searching) passOver(why string, args ...any) error {
	if s.beyond == "" {
		s.beyond = fmt.Sprintf(why, args...)
	}
	if s.again {
		return nil
	}
	return errBound
}
