//go:build linux

package engine

import (
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/hostpath"
)

// Attach opens a place of Cove's own and adds it to the binding as a says. Errors: those of hostpath.Own.
func (b *Binding) Attach(own hostpath.Own, a Attachment) (err error) {
	if a.Place, err = own.Open(); err == nil {
		b.Attachments = append(b.Attachments, a)
	}
	return err
}

// Show opens a file of Cove's own and adds it to the binding at every place in at. Errors: those of hostpath.Own.
func (b *Binding) Show(own hostpath.Own, at ...File) error {
	place, err := own.Open()
	if err != nil {
		return err
	}
	for _, f := range at {
		f.Place = place
		b.Files = append(b.Files, f)
	}
	return nil
}

// Close closes the descriptors of a binding, after Bind or instead of it.
func (b *Binding) Close() {
	for _, a := range b.Attachments {
		a.Place.Close()
	}
	for _, f := range b.Files {
		f.Place.Close() // again where it is shown twice, which does nothing
	}
	b.Overlay.Close()
	if b.Changes != nil {
		b.Changes.Close()
	}
}

// OpenMounts opens the sources of the mounts, each of which is judged once more and searched (invariant H5), and makes
// the mounts attachments, each followed by its guards; user is the sandbox's. The caller calls done, also on
// error. Engines call it, on their own copy of a binding.
func (b *Binding) OpenMounts(ctx context.Context, rules hostpath.Rules, user cove.User) (done func(), err error) {
	var opened Binding
	for _, m := range b.Mounts {
		o, err := rules.Open(ctx, m.Source,
			hostpath.Wish{ReadOnly: m.ReadOnly, Allow: b.Allow, User: uint32(user.UID), Again: b.Again,
				Token: path.Dir(m.Target) == cove.Tokens})
		if err != nil {
			return opened.Close, err
		}
		if o.Mark != nil && b.Marks != nil {
			*b.Marks = append(*b.Marks, *o.Mark)
		}
		a := Attachment{Place: o.Place, Target: m.Target, ReadOnly: m.ReadOnly, NoExec: m.NoExec, NoFollow: m.NoFollow}
		opened.Attachments = append(opened.Attachments, a)
		for _, g := range o.Guards {
			a.Place, a.Target, a.ReadOnly = g.Place, path.Join(m.Target, g.Name), g.ReadOnly
			a.Guard = &guest.Inode{Dev: g.Dev, Ino: g.Ino}
			opened.Attachments = append(opened.Attachments, a)
		}
	}
	var under, over []Attachment
	for _, a := range b.Attachments {
		if slices.ContainsFunc(b.Mounts, func(m cove.Mount) bool {
			return strings.HasPrefix(a.Target, path.Clean(m.Target)+"/")
		}) {
			over = append(over, a)
		} else {
			under = append(under, a)
		}
	}
	b.Attachments, b.Mounts = slices.Concat(under, opened.Attachments, over), nil
	return opened.Close, nil
}

// Identity tells one directory or file of the host from every other.
type Identity struct {
	Path     string // by the kernel's name, without symbolic links
	Dev, Ino uint64
}

// Identify returns the identity of an open place, for a caller that has to find it again by its path and compare.
func Identify(place *os.File) (Identity, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(place.Fd()), &st); err != nil {
		return Identity{}, fmt.Errorf("stat %s: %w", place.Name(), err)
	}
	path, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(place.Fd())))
	return Identity{Path: path, Dev: st.Dev, Ino: st.Ino}, err
}
