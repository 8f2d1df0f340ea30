package layer

import (
	"io/fs"

	"github.com/cove-sandbox/cove/internal/rootfs"
)

// Found is a file or directory of a stack.
type Found struct {
	Dir   string // that of the stack that has it, the highest of several; empty: it is not there
	Name  string // in Dir, without symbolic links
	Mode  fs.FileMode
	Whole bool // no other directory of the stack has a part of it
}

// Find finds a file or directory by a path in a stack.
func Find(in rootfs.Stack, name string) Found {
	v, err := in.Open()
	if err != nil {
		return Found{}
	}
	defer v.Close()
	real, err := v.Resolve(name)
	if err != nil {
		return Found{}
	}
	info, err := v.Lstat(real)
	if err != nil {
		return Found{}
	}
	dir, err := v.Part(real)
	if err != nil {
		return Found{}
	}
	return Found{Dir: dir, Name: real, Mode: info.Mode(), Whole: !info.IsDir() || len(v.Parts(real)) == 1}
}

// Resolve returns what a path means in a stack: one relative to its top, without symbolic links, whose last components
// may be missing.
func Resolve(in rootfs.Stack, name string) (string, error) {
	v, err := in.Open()
	if err != nil {
		return "", failure(err, "open a root filesystem")
	}
	defer v.Close()
	real, err := v.Resolve(name)
	return real, failure(err, "find "+name)
}
