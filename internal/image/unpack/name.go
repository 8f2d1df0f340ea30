package unpack

import (
	"cmp"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
)

const (
	whiteoutPrefix = ".wh."
	opaqueMarker   = ".wh..wh..opq"
	metaPrefix     = ".wh..wh." // reserved names of AUFS, the origin of whiteouts
)

// clean converts a name of an archive to a path relative to the root, "." being the root itself, or refuses it.
func (l Limits) clean(name string) (string, error) {
	if strings.IndexByte(name, 0) >= 0 {
		return "", refuse(name, "the name has a NUL byte")
	}
	if name == "" {
		return "", refuse(name, "the name is empty")
	}
	if strings.HasPrefix(name, "/") {
		if strings.Trim(name, "/") == "" { // some builders write the root as "/"
			return ".", nil
		}
		return "", refuse(name, "the name is absolute")
	}
	if len(name) > l.NameLength {
		return "", cove.Errorf(cove.TooLarge, "entry %.64q…: the name has %d bytes, at most %d are allowed", name, len(name),
			l.NameLength)
	}
	parts := slices.DeleteFunc(strings.Split(name, "/"), func(part string) bool { return part == "" || part == "." })
	if slices.Contains(parts, "..") {
		return "", refuse(name, "the name contains \"..\"")
	}
	if slices.ContainsFunc(parts, func(part string) bool { return len(part) > 255 }) { // NAME_MAX
		return "", refuse(name, "a component has more than 255 bytes")
	}
	if len(parts) > l.Depth {
		return "", cove.Errorf(cove.TooLarge, "entry %.64q…: %d directories deep, at most %d are allowed", name,
			len(parts), l.Depth)
	}
	return cmp.Or(strings.Join(parts, "/"), "."), nil
}

// split separates a clean path into its directory and its last component.
func split(path string) (dir, base string) {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return ".", path
}

func refuse(name, why string) error {
	return cove.Errorf(cove.InvalidArgument, "entry %.200q is refused: %s", name, why)
}
