package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove/internal/git/policy"
	"github.com/cove-sandbox/cove/internal/pattern"
)

// Limits of special files (.gitattributes and .gitmodules) that new commits have at
// other paths than before, and that the pack does not bring.
const (
	maxSpecial     = 256
	maxSpecialSize = 16 << 20 // bytes of all of them, compressed
)

// checkSpecial checks the .gitattributes and .gitmodules that new commits have and the pack does not bring. A file that
// stays at its path is no change: the server has it there, and its contents are not checked again. A file that a new
// commit puts at another path, such as one that had an ordinary name, is new there: the server gives its contents, and
// the pack is checked again beside them.
//
// Only what complete has found in the history that the sandbox sees is asked for.
func (r *run) checkSpecial(ctx context.Context, fresh []string) error {
	if len(r.special) == 0 {
		return nil
	}
	placed, err := r.placed(ctx, fresh)
	if err != nil || len(placed) == 0 {
		return err
	}
	if len(placed) > maxSpecial {
		return defect(fmt.Sprintf("it moves more than %d .gitattributes and .gitmodules", maxSpecial))
	}
	if err := r.fetch(ctx, placed); err != nil {
		return err
	}
	return r.git.recheck(ctx, r.pack)
}

// fetch has the server give objects that the repository lacks.
func (r *run) fetch(ctx context.Context, ids []string) error {
	lacks, err := r.obtain(ctx, ids, maxSpecialSize)
	if refusal := (*notObtained)(nil); errors.As(err, &refusal) {
		return defect(fmt.Sprintf("%s %s: %s", notGiven, refusal.id, plain(refusal.cause)))
	}
	if err == nil && len(lacks) > 0 {
		err = defect(notGiven + " " + lacks[0])
	}
	return err
}

// notObtained is that the server refuses to give an object.
type notObtained struct {
	id    string
	cause error
}

func (n *notObtained) Error() string { return n.id + ": " + plain(n.cause) }

// obtain has the server give objects that the repository lacks, and returns those that it still lacks. A server that
// cannot leave objects out has given them with what the push is built on. Errors: notObtained, and the pack's.
func (r *run) obtain(ctx context.Context, ids []string, most int64) (lacks []string, err error) {
	if lacks, err = r.git.lacks(ctx, ids); err != nil || len(lacks) == 0 {
		return nil, err
	}
	pack, _, err := r.job.Server.Fetch(ctx, Query{Wants: lacks, Objects: true})
	if err != nil {
		return nil, &notObtained{lacks[0], err}
	}
	defer pack.Close()
	if err := r.git.index(ctx, pack, most); err != nil {
		return nil, err
	}
	return r.git.lacks(ctx, ids)
}

// notGiven is the defect of a push whose special files cannot be checked.
const notGiven = "it moves a .gitattributes or .gitmodules whose contents the server does not give:"

// placed returns those of special that a new commit has at a path where none of its parents has them.
func (r *run) placed(ctx context.Context, fresh []string) (ids []string, err error) {
	found := map[string]bool{}
	err = r.git.records(ctx, strings.NewReader(strings.Join(fresh, "\n")+"\n"), func(next func() (string, error)) error {
		field, err := next()
		if err != nil || !strings.HasPrefix(field, ":") { // the id of a commit
			return err
		}
		if _, err := next(); err != nil { // the path
			return err
		}
		f := strings.Fields(field) // modes of the parents and of the commit, their ids, and a status
		if len(f) < 5 {
			return defect("it cannot be read")
		}
		id := f[len(f)-2]
		if _, is := slices.BinarySearch(r.special, id); is {
			found[id] = true
		}
		return nil
	}, "diff-tree", "--stdin", "-z", "-r", "-t", "-c", "--root", "--no-renames", "--no-abbrev")
	return keys(found), err
}

// unchecked reads what an index-pack that checks says after the name of the pack, and how it ended.
func unchecked(said string, err error) (lacks []string, _ error) {
	if f := (*failed)(nil); errors.As(err, &f) {
		unread, ok := unreadAttributes(f.stderr)
		if !ok {
			return nil, defect("its pack is refused: " + complaint(f.stderr))
		}
		lacks, err = unread, nil
	}
	if err != nil {
		return nil, err
	}
	for id := range strings.Lines(said) { // the .gitmodules that it lacks
		id = strings.TrimSuffix(id, "\n")
		if !policy.IsObjectID(id) {
			return nil, followed
		}
		lacks = append(lacks, id)
	}
	slices.Sort(lacks)
	return slices.Compact(lacks), nil
}

// finding is an error that git's fsck reports of an object: the id of the object,
// and the id of the message (fsck-msgids).
var finding = pattern.New(`(?m)^error: object ([0-9a-f]{40,64}): ([a-zA-Z]{1,40}): `)

// unreadable is the finding of a .gitattributes that git lacks.
const unreadable = "gitattributesMissing"

// unreadAttributes reads what an index-pack reported that failed at the end of its checks. ok reports that its errors
// are .gitattributes that it lacks, and nothing else. What it warns of, it takes.
func unreadAttributes(stderr string) (lacks []string, ok bool) {
	ended := false
	for line := range strings.Lines(stderr) {
		found := finding.FindStringSubmatch(line)
		switch {
		case ended:
			return nil, false
		case line == "fatal: fsck error in pack objects\n":
			ended = true
		case found != nil && found[2] == unreadable:
			lacks = append(lacks, found[1])
		case !strings.HasPrefix(line, "warning: "):
			return nil, false
		}
	}
	return lacks, ended && len(lacks) > 0
}

// found names the first error that fsck has found, if there is one.
func found(stderr string) string {
	for _, f := range finding.Regexp().FindAllStringSubmatch(stderr, -1) {
		if f[2] != unreadable {
			said := fmt.Sprintf(": git fsck reports %s of %s", f[2], f[1])
			for _, name := range []string{"gitmodules", "gitattributes"} {
				if strings.HasPrefix(f[2], name) {
					said += ", a ." + name
				}
			}
			return said + "; look at it with git cat-file -p, and rewrite the commit that has it"
		}
	}
	return ""
}
