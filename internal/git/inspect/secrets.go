package inspect

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove/internal/git/policy"
)

const (
	maxBlobs    = 250_000
	maxSearched = 2 << 30 // bytes of files that are searched for keys of known forms
	maxScanned  = 1 << 20 // bytes of a line, or of the part of one, that are looked at together
	maxFound    = 16
	maxMatches  = 100_000  // lines with secrets, in new files and their earlier versions
	maxEarlier  = 256      // earlier versions of other files of one commit
	maxCompared = 64 << 20 // bytes of earlier versions that the server gives, compressed
)

// match is a secret in a file.
type match struct {
	line  int // from 1
	name  string
	known bool
	sum   uint64 // of what makes it the same in another version
}

// search is a search for secrets in the files of a push.
type search struct {
	*run
	seed maphash.Seed
	n    int // matches so far
}

// secrets finds the secrets that new commits add: those in a file that no file which its commit changes had before. A
// line that is moved is not added. blobs are all files that new commits change or add.
func (r *run) secrets(ctx context.Context, fresh []string, blobs map[string]bool) error {
	s := &search{run: r, seed: maphash.MakeSeed()}
	most := int64(maxSearched)
	if len(r.job.Secrets) > 0 { // a policy's own patterns are looked for in all
		most = 1<<63 - 1
	}
	matches, all, err := s.in(ctx, keys(blobs), most)
	r.facts.Unsearched = r.facts.Unsearched || !all
	if err != nil || len(matches) == 0 {
		return err
	}
	sites, err := s.sites(ctx, fresh, matches)
	if err != nil {
		return err
	}
	earlier := map[string]bool{}
	for _, p := range sites {
		for _, id := range p.earlier {
			earlier[id] = true
		}
	}
	if _, err := r.obtain(ctx, keys(earlier), maxCompared); err != nil && ctx.Err() != nil {
		return err
	} // what the server does not give counts as without secrets
	before, _, err := s.in(ctx, keys(earlier), 1<<63-1)
	if err != nil {
		return err
	}
	for _, p := range sites {
		for _, m := range matches[p.id] {
			had := slices.ContainsFunc(p.earlier, func(id string) bool {
				return slices.ContainsFunc(before[id], func(b match) bool { return b.sum == m.sum })
			})
			if !had && len(r.facts.Secrets) < maxFound {
				r.facts.Secrets = append(r.facts.Secrets, policy.Found{Commit: p.commit, Path: p.path, Line: m.line,
					Secret: m.name, Known: m.known})
			}
		}
	}
	return nil
}

// enough ends a search before all is searched.
var enough = errors.New("enough is searched")

// in finds secrets in files, by id; all is whether so many bytes were enough for all of them.
func (s *search) in(ctx context.Context, ids []string, most int64) (found map[string][]match, all bool, err error) {
	found = map[string][]match{}
	err = s.git.objects(ctx, ids, func(id, _ string, content io.Reader) error {
		counted := &io.LimitedReader{R: content, N: most}
		lines := policy.Search{Secrets: s.job.Secrets, Known: s.job.Known}
		err := eachLine(counted, func(n int, line []byte) error {
			lines.Line(line, func(name string, text []byte, known bool) {
				s.n++
				found[id] = append(found[id], match{n, name, known, maphash.Bytes(s.seed, text)})
			})
			if s.n > maxMatches {
				return defect("it has too many lines that look like secrets")
			}
			return nil
		})
		if most = counted.N; err == nil && most == 0 {
			err = enough
		}
		return err
	})
	if errors.Is(err, enough) {
		return found, false, nil
	}
	return found, true, err
}

// site is a file with secrets in a commit, and the earlier versions of it and of others that the commit changes.
type site struct {
	commit, path, id string
	earlier          []string
}

// sites finds the commits that have files with matches.
func (s *search) sites(ctx context.Context, fresh []string, matches map[string][]match) (all []site, err error) {
	var here []site               // of one commit
	var others []string           // its earlier versions, of any path
	same := map[string][]string{} // by path
	commit, end := "", func() {
		for _, p := range here {
			p.earlier = slices.Concat(same[p.path], others)
			all = append(all, p)
		}
		here, others = nil, nil
		clear(same)
	}
	err = s.eachChange(ctx, fresh, func(of string) {
		if of != commit {
			end()
			commit = of
		}
	}, func(path string, e entry) error {
		if len(matches[e.new]) > 0 && !slices.ContainsFunc(here, func(p site) bool { return p.path == path }) {
			here = append(here, site{commit: commit, path: strings.Clone(path), id: e.new})
		}
		if e.old != "" && e.mode != policy.Gitlink {
			if len(others) < maxEarlier {
				others = append(others, e.old)
			} else {
				same[path] = append(same[path], e.old)
			}
		}
		if len(all)+len(here) > maxMatches {
			return defect("it has too many files that look like secrets")
		}
		return nil
	})
	end()
	return all, err
}

// eachLine hands lines to f, counted from 1; of one that is too long, its parts.
func eachLine(content io.Reader, f func(n int, line []byte) error) error {
	r := bufio.NewReaderSize(content, maxScanned)
	for n := 1; ; {
		line, err := r.ReadSlice('\n')
		if len(line) > 0 {
			if err := f(n, line); err != nil {
				return err
			}
		}
		switch err {
		case nil:
			n++
		case bufio.ErrBufferFull:
		case io.EOF:
			return nil
		default:
			return err
		}
	}
}

// eachChange hands what each new commit changes to f, compared to each of its parents. begin is called before the
// changes of each commit, and of each parent of a merge.
func (r *run) eachChange(
	ctx context.Context, fresh []string, begin func(commit string), f func(path string, e entry) error,
) error {
	return r.git.records(ctx, strings.NewReader(strings.Join(fresh, "\n")+"\n"), func(next func() (string, error)) error {
		field, err := next()
		if err != nil {
			return err
		}
		if !strings.HasPrefix(field, ":") {
			commit, _, _ := strings.Cut(field, " ")
			if !policy.IsObjectID(commit) {
				return defect("it cannot be read")
			}
			begin(commit)
			return nil
		}
		path, err := next()
		if err != nil {
			return err
		}
		e, err := parseEntry(field)
		if err != nil {
			return err
		}
		return f(path, e)
	}, "diff-tree", "--stdin", "-z", "-r", "-m", "--root", "--no-renames", "--no-abbrev")
}

// entry is a change of one entry of a tree; ids are "" where there is none.
type entry struct {
	mode     policy.Mode
	old, new string
}

// parseEntry reads ":MODE MODE ID ID STATUS".
func parseEntry(s string) (e entry, err error) {
	f := strings.Fields(s)
	if len(f) != 5 || !policy.IsObjectID(f[2]) || !policy.IsObjectID(f[3]) {
		return e, defect("it cannot be read")
	}
	mode := f[1]
	if strings.Trim(f[3], "0") != "" {
		e.new = f[3]
	} else {
		mode = strings.TrimPrefix(f[0], ":")
	}
	if strings.Trim(f[2], "0") != "" {
		e.old = f[2]
	}
	if _, err := fmt.Sscanf(mode, "%o", &e.mode); err != nil {
		return e, defect("it cannot be read")
	}
	return e, nil
}
