// Package inspect finds out what is in the pack of a push, in a sandbox of its own: one without network, with limits of
// memory, time, tasks and output, that is destroyed when it has answered.
//
// A pack is bytes of an untrusted source, and the git that reads it is outside the trusted base: it runs in there, and
// what it writes is read here as hostile, too. It decides nothing; what it finds are Facts.
//
// What a push needs of the server's (commits that new ones are built on) comes from the server, through an Upstream. A
// missing object is not guessed: then ancestry is Unknown, or the push has a defect.
package inspect

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/policy"
)

// Sandbox is one whose push or fetch is looked into. Packs of several are looked into in turn.
type Sandbox struct {
	ID    cove.SandboxID
	Owner cove.Principal // pays with CPU time
}

// Job is a push whose pack is looked into.
type Job struct {
	Sandbox Sandbox
	Pack    io.Reader // the whole of it; nil where the push has none
	Max     int64     // bytes of it, and of what the server is asked for
	Compare []Compare // one for each update that does not delete
	// Shallow are commits whose parents the client says that it has not. A new
	// commit is none: its history would be cut.
	Shallow []string
	// Visible are commits that the sandbox may see; what is new is built on them, or on what is in their history.
	Visible []string
	// Settled holds the visible commits at the tips of other people's branches: what a
	// commit takes over from one is no change of its own.
	Settled []string
	Watch   func(policy.Change) bool // which changes count
	Secrets []policy.Secret
	Known   bool // also look for secrets of known forms
	Server  Upstream
}

// Compare is an update, and what its ref was before: Old, unless the ref has
// been deleted a moment ago. "" where there was none.
type Compare struct {
	Update policy.Update
	From   string
}

// Query describes a request to a server.
type Query struct {
	Wants, Haves []string
	Trees        bool // of Wants themselves, without blobs; otherwise all commits that Haves do not have
	All          bool // with trees
	Objects      bool // Wants alone, of whatever kind
}

// Upstream asks the server that a push is for.
type Upstream interface {
	// Fetch gives a pack, and which of its commits have parents that it lacks. The caller reads the pack to its end and
	// closes it. Errors: any, and the server has not what is wanted, or does not give it.
	Fetch(ctx context.Context, q Query) (pack io.ReadCloser, shallow []string, err error)
}

// Limits of what is found, beyond which a push is refused.
const (
	maxObjects  = 2_000_000
	maxCommits  = 20_000 // new ones
	maxBoundary = 5000   // commits that new ones are built on, or that refs are to be at
	maxOneByOne = 8      // of them that the server is asked about one by one
	maxChanges  = 1000   // that count
)

// run is one inspection.
type run struct {
	job     Job
	git     git
	commits map[string][]string // of the pack: parents
	tags    map[string]string   // of the pack: what they are of
	pack    string              // its name in the repository
	special []string            // sorted: what the pack's trees have as .gitattributes or .gitmodules, and the pack lacks
	facts   policy.Facts
}

// defect is why a push cannot be told to be in order.
type defect string

func (d defect) Error() string { return string(d) }

// inspect looks into a push with a git in an empty repository.
func inspect(ctx context.Context, g git, job Job) (policy.Facts, error) {
	r := &run{job: job, git: g, commits: map[string][]string{}, tags: map[string]string{}}
	r.facts.Ancestry = map[policy.Update]policy.Ancestry{}
	if err := r.all(ctx); err != nil {
		if d, ok := err.(defect); ok {
			r.facts.Defects = append(r.facts.Defects, string(d))
			return r.facts, nil
		}
		return policy.Facts{}, err
	}
	return r.facts, nil
}

func (r *run) all(ctx context.Context) error {
	if r.job.Pack != nil {
		var err error
		if r.pack, r.special, err = r.git.check(ctx, r.job.Pack, r.job.Max); err != nil {
			return err
		}
		if err := r.read(ctx); err != nil {
			return err
		}
	}
	for _, id := range r.job.Shallow {
		if _, ok := r.commits[id]; ok {
			return defect("it cuts off the history of new commits (shallow); fetch with --unshallow, and push again")
		}
	}
	tips, err := r.tips(ctx)
	if err != nil {
		return err
	}
	fresh, boundary := r.walk(tips)
	r.facts.Commits = len(fresh)
	if len(fresh) > maxCommits || len(boundary) > maxBoundary {
		return defect(fmt.Sprintf("it has more than %d new commits, or is built on more than %d", maxCommits, maxBoundary))
	}
	if err := r.visible(ctx, boundary); err != nil {
		return err
	}
	if len(fresh) > 0 {
		if err := r.contents(ctx, fresh, boundary); err != nil {
			return err
		}
	}
	for _, c := range r.job.Compare {
		if c.From != "" {
			r.facts.Ancestry[c.Update] = r.ancestry(ctx, c)
		}
	}
	return nil
}

// read lists what is in the pack.
func (r *run) read(ctx context.Context) error {
	n := 0
	err := r.git.list(ctx, func(kind, id string) error {
		if n++; n > maxObjects {
			return defect(fmt.Sprintf("it has more than %d objects", maxObjects))
		}
		if !policy.IsObjectID(id) {
			return defect("it cannot be read")
		}
		switch kind {
		case "commit":
			r.commits[id] = nil
		case "tag":
			r.tags[id] = ""
		}
		if len(r.commits) > maxCommits*2 {
			return defect(fmt.Sprintf("it has more than %d commits", maxCommits*2))
		}
		return nil
	})
	if err != nil {
		return err
	}
	heads := func(ids []string, field string, add func(id, value string)) error {
		return r.git.objects(ctx, ids, func(id, _ string, content io.Reader) error {
			return headers(content, func(name, value string) {
				if name == field && policy.IsObjectID(value) {
					add(id, value)
				}
			})
		})
	}
	if err := heads(keys(r.commits), "parent",
		func(id, parent string) { r.commits[id] = append(r.commits[id], parent) }); err != nil {
		return err
	}
	return heads(keys(r.tags), "object", func(id, object string) { r.tags[id] = object })
}

func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// tips are the commits that refs are to be at.
func (r *run) tips(ctx context.Context) (all []string, err error) {
	noCommit := defect("a ref would be at something that is no commit")
	for _, c := range r.job.Compare {
		id := c.Update.New
		for range 8 { // tags of tags
			of, ok := r.tags[id]
			if !ok {
				break
			}
			id = of
		}
		if _, isTag := r.tags[id]; isTag || !policy.IsObjectID(id) {
			return nil, noCommit
		}
		all = append(all, id)
	}
	return all, r.git.lines(ctx, strings.NewReader(strings.Join(all, "\n")+"\n"), func(line string) error {
		if kind, _, _ := strings.Cut(line, " "); kind == "tree" || kind == "blob" { // of the pack: nothing else is there yet
			return noCommit
		}
		return nil
	}, "cat-file", "--batch-check=%(objecttype) %(objectname)")
}

// walk finds the commits of the pack that tips lead to, and those beyond it that they are built on.
func (r *run) walk(tips []string) (fresh, boundary []string) {
	seen := map[string]bool{}
	for next := slices.Clone(tips); len(next) > 0; {
		id := next[len(next)-1]
		next = next[:len(next)-1]
		if seen[id] {
			continue
		}
		seen[id] = true
		parents, inPack := r.commits[id]
		if !inPack {
			boundary = append(boundary, id)
			continue
		}
		fresh = append(fresh, id)
		next = append(next, parents...)
	}
	slices.Sort(fresh)
	slices.Sort(boundary)
	return fresh, boundary
}

// visible refuses a push that is built on what the sandbox does not see: it would see it then.
func (r *run) visible(ctx context.Context, boundary []string) error {
	unknown := slices.DeleteFunc(slices.Clone(boundary),
		func(id string) bool { return slices.Contains(r.job.Visible, id) })
	history := map[string]bool(nil)
	if len(unknown) > maxOneByOne { // as where many tags are pushed
		var err error
		if history, err = r.history(ctx, r.job.Visible); err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
	}
	for _, id := range unknown {
		found, err := history[id], error(nil)
		if history == nil {
			found, err = r.descends(ctx, id, r.job.Visible)
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return defect("the server does not say whether it is built on the history of what this sandbox sees: " + plain(err))
		case !found:
			return defect(fmt.Sprintf("it is built on commits that are not in the history of what this sandbox sees (%.12s); "+
				"fetch, and merge or rebase", id))
		}
	}
	return nil
}

// history returns the commits in the history of tips. Without an answer of the server it is nil.
func (r *run) history(ctx context.Context, tips []string) (map[string]bool, error) {
	all := map[string]bool{}
	for part := range slices.Chunk(tips, maxWants) {
		err := r.commitsAside(ctx, Query{Wants: part}, func(_ git, commits []string) error {
			for _, id := range commits {
				all[id] = true
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// maxWants bounds the wants of one request.
const maxWants = 512

// descends reports whether a commit is in the history of one of tips, which the
// server is asked for: of all commits in it that are not in the commit's own
// history, one has it for a parent. An error is the first, if no answer is that it is.
func (r *run) descends(ctx context.Context, from string, tips []string) (found bool, failure error) {
	if slices.Contains(tips, from) {
		return true, nil
	}
	for part := range slices.Chunk(tips, maxWants) {
		ok, err := r.descendsFrom(ctx, from, part)
		if err == nil && ok {
			return true, nil
		}
		failure = cmp.Or(failure, err)
	}
	return false, failure
}

func (r *run) descendsFrom(ctx context.Context, from string, tips []string) (found bool, err error) {
	err = r.commitsAside(ctx, Query{Wants: tips, Haves: []string{from}}, func(aside git, commits []string) error {
		return aside.objects(ctx, commits, func(_, _ string, content io.Reader) error {
			return headers(content, func(name, value string) { found = found || name == "parent" && value == from })
		})
	})
	return found, err
}

// commitsAside hands the commits of the server's answer to q to f, in an empty repository of their own.
func (r *run) commitsAside(ctx context.Context, q Query, f func(aside git, commits []string) error) error {
	pack, shallow, err := r.job.Server.Fetch(ctx, q)
	if err != nil {
		return err
	}
	defer pack.Close()
	if len(shallow) > 0 { // the server itself has not all of it
		return defect("the history is not whole")
	}
	aside, err := r.git.aside(ctx)
	if err != nil {
		return err
	}
	if err := aside.index(ctx, pack, r.job.Max); err != nil {
		return err
	}
	var commits []string
	err = aside.list(ctx, func(kind, id string) error {
		if kind == "commit" && policy.IsObjectID(id) {
			commits = append(commits, id)
		}
		if len(commits) > maxObjects {
			return defect("the history is too long")
		}
		return nil
	})
	if err != nil {
		return err
	}
	return f(aside, commits)
}

// ancestry compares what a ref was with what it is to be.
func (r *run) ancestry(ctx context.Context, c Compare) policy.Ancestry {
	tip := c.Update.New
	if of, ok := r.tags[tip]; ok {
		tip = of
	}
	_, boundary := r.walk([]string{tip})
	if tip == c.From || slices.Contains(boundary, c.From) {
		return policy.Descends
	}
	if _, inPack := r.commits[c.From]; inPack { // it was sent again
		if fresh, _ := r.walk([]string{tip}); slices.Contains(fresh, c.From) {
			return policy.Descends
		}
	}
	if len(boundary) == 0 {
		return policy.Diverges
	}
	ok, err := r.descendsFrom(ctx, c.From, boundary)
	switch {
	case err != nil:
		return policy.Unknown
	case ok:
		return policy.Descends
	}
	return policy.Diverges
}

// contents finds what the new commits change.
func (r *run) contents(ctx context.Context, fresh, boundary []string) error {
	if len(boundary) > 0 {
		if err := r.base(ctx, boundary); err != nil {
			return err
		}
	}
	if err := r.complete(ctx, fresh, boundary); err != nil {
		return err
	}
	if err := r.changes(ctx, fresh, boundary); err != nil {
		return err
	}
	return r.checkSpecial(ctx, fresh)
}

// base has the server give the trees of the commits that new ones are built on.
func (r *run) base(ctx context.Context, boundary []string) error {
	pack, shallow, err := r.job.Server.Fetch(ctx, Query{Wants: boundary, Trees: true})
	if err != nil {
		return defect("its base cannot be fetched from the server: " + plain(err))
	}
	defer pack.Close()
	if err := r.git.index(ctx, pack, r.job.Max); err != nil {
		return err
	}
	for _, id := range shallow {
		if !slices.Contains(boundary, id) {
			return defect("the server sends objects that were not requested")
		}
	}
	return r.git.shallow(ctx, shallow)
}

// plain is an error without a hint, in one line.
func plain(err error) string {
	s := strings.TrimSuffix(err.Error(), " ("+cove.ErrorHint(err)+")")
	s, _, _ = strings.Cut(s, "\n")
	return s
}

// complete refuses a push that names objects which it does not bring, and which are not in what it is built on: those
// the sandbox may never have seen, and it would see them then.
func (r *run) complete(ctx context.Context, fresh, boundary []string) error {
	var in strings.Builder
	for _, id := range fresh {
		in.WriteString(id + "\n")
	}
	for _, id := range boundary {
		in.WriteString("^" + id + "\n")
	}
	return r.git.lines(ctx, strings.NewReader(in.String()), func(line string) error {
		if strings.HasPrefix(line, "?") {
			return defect("its pack lacks objects that are not in what it is built on")
		}
		return nil
	}, "rev-list", "--objects", "--missing=print", "--stdin")
}

// changes lists what each new commit changes, compared to each of its parents.
func (r *run) changes(ctx context.Context, fresh, boundary []string) error {
	settled := slices.DeleteFunc(slices.Clone(boundary),
		func(id string) bool { return !slices.Contains(r.job.Settled, id) })
	blobs, deletions := map[string]bool{}, policy.NewTally()
	commit, searched := "", 0
	err := r.eachChange(ctx, fresh, func(of string) {
		commit = of
		deletions.Begin(of)
	}, func(path string, e entry) error {
		change := policy.Change{Commit: commit, Path: path, Mode: e.mode, Delete: e.new == ""}
		if r.job.Watch(change) {
			taken, err := r.taken(ctx, path, e, settled)
			if err != nil {
				return err
			}
			if !taken {
				r.facts.Changes = append(r.facts.Changes, change)
			}
			if len(r.facts.Changes) > maxChanges {
				return defect(fmt.Sprintf("it changes more than %d files that the policy is about", maxChanges))
			}
		}
		deletions.Add(path, e.old, e.new)
		if e.new == "" || e.mode == policy.Gitlink || !r.job.Known && len(r.job.Secrets) == 0 {
			return nil
		}
		switch searched++; {
		case searched <= maxBlobs:
			blobs[e.new] = true
		case len(r.job.Secrets) > 0:
			return defect("it changes too many files to look for secrets")
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.facts.Unsearched = searched > maxBlobs
	if r.facts.Deleted = deletions.Count(); r.facts.Deleted > policy.DefaultMaxDeleted {
		for _, id := range boundary[:min(len(boundary), maxNear)] {
			n, err := r.git.files(ctx, id)
			if err != nil {
				return err
			}
			r.facts.Files = max(r.facts.Files, n)
		}
	}
	if len(blobs) == 0 {
		return nil
	}
	return r.secrets(ctx, fresh, blobs)
}

// taken reports whether an entry is as it is at one of settled.
func (r *run) taken(ctx context.Context, path string, e entry, settled []string) (bool, error) {
	for _, id := range settled {
		there := ""
		err := r.git.records(ctx, nil, func(next func() (string, error)) error {
			line, err := next()
			if err != nil {
				return err
			}
			head, _, _ := strings.Cut(line, "\t")
			there = head
			return nil
		}, "--literal-pathspecs", "ls-tree", "-z", "--full-tree", id, "--", path)
		if err != nil {
			return false, err
		}
		if e.new == "" && there == "" {
			return true, nil
		}
		if f := strings.Fields(there); e.new != "" && len(f) == 3 && f[0] == fmt.Sprintf("%06o", e.mode) && f[2] == e.new {
			return true, nil
		}
	}
	return false, nil
}

// maxNear is of how many tips alone the trees are looked at first.
const maxNear = 16

// unreachable returns the wants that are not in the history of tips, trees and blobs included. It fetches the trees of
// the first tips alone, which hold most wants, and then everything except blobs themselves.
func unreachable(ctx context.Context, g git, tips, wants []string, most int64, server Upstream) ([]string, error) {
	missing := map[string]bool{}
	for _, id := range wants {
		missing[id] = true
	}
	near, err := g.aside(ctx)
	if err == nil {
		err = near.strike(ctx, missing, Query{Wants: tips[:min(len(tips), maxNear)], Trees: true}, most, server)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil || len(missing) > 0 { // a server that does not give the one may give the other
		err = g.strike(ctx, missing, Query{Wants: tips, All: true}, most, server)
	}
	return keys(missing), err
}

// strike takes from missing what is in what a server answers to a query: in an empty repository.
func (g git) strike(ctx context.Context, missing map[string]bool, q Query, most int64, server Upstream) error {
	pack, shallow, err := server.Fetch(ctx, q)
	if err != nil {
		return err
	}
	defer pack.Close()
	if err := g.index(ctx, pack, most); err != nil {
		return err
	}
	if err := g.shallow(ctx, shallow); err != nil {
		return err
	}
	return g.lines(ctx, strings.NewReader(strings.Join(q.Wants, "\n")+"\n"), func(line string) error {
		id, _, _ := strings.Cut(strings.TrimPrefix(line, "?"), " ")
		delete(missing, id)
		return nil
	}, "rev-list", "--objects", "--no-object-names", "--missing=print", "--stdin")
}
