package devcontainer

import (
	"encoding/json"
	"io/fs"
	"path"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/pattern"
)

// lock holds the artifacts of devcontainer-lock.json, by the references of features as files name them.
type lock struct {
	file  string
	exact map[string]struct{ Resolved, Integrity string }
}

var sha256Digest = pattern.New(`^sha256:[0-9a-f]{64}$`)

// locked reads the lock file beside a devcontainer.json, which then belongs to what the user agrees to. Without one the
// lock is empty. Errors: InvalidArgument, Forbidden, TooLarge.
func locked(checkout fs.FS, e *Effective, all Files) (l lock, err error) {
	l.file = strings.TrimSuffix(e.File, ".json") + "-lock.json"
	if len(e.wanted) == 0 {
		return l, nil
	}
	f, err := read(checkout, l.file)
	if absent(err) {
		return l, nil
	}
	if err != nil {
		return l, err
	}
	all[l.file] = f.Data
	var content struct {
		Features map[string]struct{ Resolved, Integrity string }
	}
	if err := json.Unmarshal(f.Data, &content); err != nil {
		return l, cove.Errorf(cove.InvalidArgument, "%s: %w", l.file, err)
	}
	l.exact = content.Features
	return l, nil
}

// pin has features be the artifacts that the lock names. Those of which it says nothing stay as they are. Errors:
// InvalidArgument for another artifact than that of the feature, or one without a digest.
func (l lock) pin(features []Feature) error {
	for i := range features {
		f := &features[i]
		ref, remote := strings.CutPrefix(f.Dir, "/")
		of, is := l.exact[ref]
		if !remote || !is {
			continue
		}
		name, digest, _ := strings.Cut(of.Resolved, "@")
		_, asked, _ := strings.Cut(ref, "@")
		switch {
		case name != withoutVersion(ref) || !sha256Digest.MatchString(digest):
			return cove.Errorf(cove.InvalidArgument, "%s: %.200q is not %s with a digest", l.file, of.Resolved,
				withoutVersion(ref)).
				WithHint("have the file made anew")
		case of.Integrity != "" && of.Integrity != digest || asked != "" && asked != digest:
			return cove.Errorf(cove.InvalidArgument, "%s: there are two digests of %s", l.file, ref).
				WithHint("have the file made anew")
		}
		f.Dir = "/" + of.Resolved
	}
	return nil
}

// withoutVersion returns a reference without its tag and digest.
func withoutVersion(ref string) string {
	ref, _, _ = strings.Cut(ref, "@")
	if base, _, tagged := strings.Cut(path.Base(ref), ":"); tagged && strings.Contains(ref, "/") {
		return path.Join(path.Dir(ref), base)
	}
	return ref
}
