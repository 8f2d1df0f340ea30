package repos

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/atomicfile"
	"github.com/cove-sandbox/cove/internal/git/folder"
	"github.com/cove-sandbox/cove/internal/hostgit"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// tooManyPacks is the number of packs at which a fetch joins them: git searches every pack for each object.
const tooManyPacks = 40

// headAge is the validity of the remembered default branch.
const headAge = time.Hour

// asking configures a mirror's fetch.
type asking struct {
	head    bool // ask for the default branch too, which is remembered for a while
	partial bool // omit contents, if the mirror is new
}

// fetch updates the mirror, makes it if it is missing, and returns the remote's refs. The caller must hold the lock.
func (m *mirror) fetch(ctx context.Context, r remote, p peer, how asking,
	progress func(workspace.Step)) (advert, error) {
	was, _ := m.description() // of an existing mirror
	if how.partial && m.there() && !was.Partial {
		return advert{}, cove.Errorf(cove.Conflict, "the store has %s whole",
			m.key).WithHint("remove it first: cove repo remove %s", m.key)
	}
	was.Partial = was.Partial || how.partial
	anew := how.head || time.Since(was.HeadAt) > headAge
	var have map[string]string
	looked := make(chan error, 1)
	go func() { // while the remote prepares its answer
		var err error
		if m.there() {
			if err = cleanRepository(m.dir); err != nil {
				err = storageFull("clean a mirror", err)
			} else {
				have, err = m.refs(ctx)
			}
		}
		looked <- err
	}()
	a, err := m.list(ctx, r, p, anew)
	if err := cmp.Or(err, <-looked); err != nil {
		return advert{}, err
	}
	if anew || a.head != m.head() {
		was.HeadAt = time.Now().UTC()
	}
	if err := m.make(a.objectFormat()); err != nil {
		return advert{}, err
	}
	want := a.shared(m.s.o.Shared)
	if err := m.drop(ctx, have, want); err != nil {
		return advert{}, err
	}
	shallow, err := m.shallow(r)
	if err != nil {
		return advert{}, err
	}
	if len(shallow) > 0 || r.promisor != was.Promisor {
		have = nil // what is behind the same commits has changed
	}
	partial, taken := was.Partial, r.git != "" && (r.promisor != "" || was.Partial)
	if taken {
		was.Partial, was.Promisor, partial = true, r.promisor, true
		err = take(ctx, m.s, m.held, r, m.dir, have, want, fetching(r, progress))
	} else {
		partial, err = m.get(ctx, r, p, have, want, partial, fetching(r, progress), shallow...)
	}
	if hostgit.ExitCode(err) > 0 && r.promisor == "" && r.isPartialClone() {
		return advert{}, refusedPartial(r)
	}
	if err == nil {
		err = m.join(ctx, partial, cmp.Or(r.URL, r.git))
	}
	if err != nil {
		return advert{}, err
	}
	if was.Partial && !partial {
		tell(progress, "the remote gives its repository whole or not at all")
		was.Partial = false
	}
	if head := a.guessHead(); head != "" && head != m.head() {
		if _, err := m.git(ctx, hostgit.Run{Command: []string{"symbolic-ref"}, Args: []string{"HEAD", head}}); err != nil {
			return advert{}, err
		}
	}
	err = m.describe(r, was)
	if err == nil && len(refspecs(have, want)) > 0 {
		m.s.trimMirrors(ctx, m.key)
	}
	return a, err
}

// shallow returns the flags of a fetch from a repository of this machine whose history begins elsewhere than the
// mirror's; none where both begin alike.
func (m *mirror) shallow(r remote) ([]string, error) {
	if r.git == "" {
		return nil, nil
	}
	theirs, err := shallowCommits(r.git)
	ours, e := shallowCommits(m.dir)
	if err := cmp.Or(err, e); err != nil || slices.Equal(ours, theirs) {
		return nil, err
	}
	flags := []string{"--update-shallow"}
	if len(ours) > 0 {
		flags = append(flags, "--unshallow")
	}
	return flags, nil
}

// list returns a remote's refs. It requests only branches and tags where those suffice: forges have many more refs,
// hundreds of thousands of pull requests.
func (m *mirror) list(ctx context.Context, r remote, p peer, anew bool) (advert, error) {
	if r.git != "" {
		return m.s.listNeighbour(ctx, m.held, r.own)
	}
	if head := m.head(); head != "" && !anew {
		a, err := listRemote(ctx, m.held, p, "--heads", "--tags")
		if _, there := a.refs[head]; err != nil || there {
			a.head = head
			return a, err
		}
	}
	return listRemote(ctx, m.held, p, "--symref")
}

// head returns the default branch at the time of the last fetch; empty if unknown.
func (m *mirror) head() string {
	if !m.there() {
		return ""
	}
	text, _ := folder.ReadPointer(filepath.Join(m.dir, "HEAD")) // if it is missing, the remote is asked
	head, _ := strings.CutPrefix(text, "ref: ")
	return head
}

// listRemote requests a remote's refs.
func listRemote(ctx context.Context, held []*os.File, p peer, flags ...string) (advert, error) {
	out, err := p(ctx, held, hostgit.Run{Command: []string{"ls-remote"}, Flags: flags})
	if err != nil {
		return advert{}, err
	}
	return parseAdvert(string(out))
}

// make makes an empty mirror. A directory without a description is the remains of an interrupted one.
func (m *mirror) make(format string) error {
	if m.there() {
		return nil
	}
	err := os.RemoveAll(m.dir)
	if err == nil {
		err = os.MkdirAll(m.dir, 0o700)
	}
	if err != nil {
		return storageFull("make a mirror", err)
	}
	return emptyRepository(m.dir, coreConfig(format, true))
}

// refs returns the refs of the mirror.
func (m *mirror) refs(ctx context.Context) (map[string]string, error) {
	out, err := m.git(ctx, hostgit.Run{Command: []string{"for-each-ref"},
		Flags: []string{"--format=%(objectname)%09%(refname)"}})
	if err != nil {
		return nil, err
	}
	a, err := parseAdvert(string(out))
	return a.refs, err
}

// drop removes refs that the remote has deleted. Their objects stay.
func (m *mirror) drop(ctx context.Context, have, want map[string]string) error {
	var in bytes.Buffer
	for _, ref := range slices.Sorted(maps.Keys(have)) {
		if _, ok := want[ref]; !ok {
			in.WriteString("delete " + ref + "\n")
		}
	}
	if in.Len() == 0 {
		return nil
	}
	_, err := m.git(ctx, hostgit.Run{Command: []string{"update-ref"}, Flags: []string{"--stdin"}, Stdin: &in})
	return err
}

// get fetches new objects, and reports whether a requested filter was applied.
func (m *mirror) get(ctx context.Context, r remote, p peer, have, want map[string]string, partial bool,
	said func(string), flags ...string) (bool, error) {
	specs := refspecs(have, want)
	if len(specs) == 0 {
		return partial, nil
	}
	filtered := partial
	err := m.bounded(ctx, func(most int64) error {
		run := fetchRun(m.dir, bytes.NewBufferString(strings.Join(specs, "\n")+"\n"))
		run.Flags = append(run.Flags, flags...)
		run.Said = said
		run.Limits = hostgit.DefaultLimits
		run.Limits.FileSize = min(run.Limits.FileSize, most+1)
		if filtered {
			run = leavingOut(run, r.URL, contents)
			run.Said = func(line string) {
				partial = partial && !strings.Contains(line, notFiltered)
				if said != nil {
					said(line)
				}
			}
		}
		_, err := p(ctx, m.held, run)
		return err
	})
	// before 2.44 harmless findings cannot be listed for it
	if partial && err != nil && strings.Contains(err.Error(), "fsck error") {
		err = cove.Errorf(cove.ErrorCode(err), "%w", err).WithHint(
			"git before 2.44 takes no part of a repository with such commits: leave out --partial, or install a newer one")
	}
	return partial, err
}

// join joins the packs of the mirror if they are too many.
func (m *mirror) join(ctx context.Context, partial bool, address string) error {
	packs, err := filepath.Glob(filepath.Join(m.dir, "objects/pack/*.pack"))
	if err != nil || len(packs) <= tooManyPacks {
		return err
	}
	_, err = m.git(ctx, m.joining(partial, address))
	return err
}

// manyTags is the number of changed tags from which all are asked for at once: git compares every single refspec with
// every ref of the remote.
const manyTags = 50

// refspecs returns those of the refs that differ. All tags are wanted where one is. It is pure.
func refspecs(have, want map[string]string) (specs []string) {
	var tags []string
	for _, ref := range slices.Sorted(maps.Keys(want)) {
		switch spec := "+" + ref + ":" + ref; {
		case have[ref] == want[ref]:
		case strings.HasPrefix(ref, "refs/tags/"):
			tags = append(tags, spec)
		default:
			specs = append(specs, spec)
		}
	}
	if len(tags) > manyTags {
		tags = []string{"+refs/tags/*:refs/tags/*"}
	}
	return append(specs, tags...)
}

// joining returns the run that joins packs. Packs of a partial mirror are marked, and the joined one must be marked
// too: so git joins all of them, and drops nothing.
func (m *mirror) joining(partial bool, address string) hostgit.Run {
	run := hostgit.Run{Command: []string{"repack"}, Flags: []string{"--quiet", "-d", "--geometric=2"}}
	if partial {
		name := strings.TrimPrefix(address, "/") // of a directory: a remote's name begins with no slash
		run.Flags, run.Settings = []string{"--quiet", "-d", "-a"}, promised(name, contents)
	}
	return run
}

// describe writes the mirror's description, with the time of the fetch.
func (m *mirror) describe(r remote, d Mirror) error {
	d.Address, d.Key, d.FetchedAt = cmp.Or(r.URL, r.git), m.key, time.Now().UTC()
	data, err := json.Marshal(d)
	if write := atomicfile.Write; err == nil {
		if m.there() && !d.Partial {
			write = atomicfile.Replace // without it, its content can be fetched again
		}
		err = write(filepath.Join(m.dir, mirrorFile), data, 0o600)
	}
	if err != nil {
		return storageFull("describe a mirror", err)
	}
	return nil
}

func fetchStep(r remote) string {
	step := "fetching " + cmp.Or(r.URL, r.Dir)
	if len(r.borrowed) > 0 {
		step += ", with objects of " + strings.Join(r.borrowed, " and ")
	}
	return step
}

func tell(progress func(workspace.Step), text string) {
	if progress != nil {
		progress(workspace.Step{Text: text})
	}
}

// stages are the stages of a fetch and a checkout in git's words, with their share of the whole.
var stages = []struct {
	name        string
	from, until float64
}{{"Receiving objects", 0, 0.8}, {"Resolving deltas", 0.8, 1}, {"Updating files", 0, 1}}

// done parses git's progress. It is pure.
func done(line string) (part float64, ok bool) {
	for _, s := range stages {
		rest, is := strings.CutPrefix(line, s.name+":")
		percent, _, shown := strings.Cut(rest, "%")
		n, err := strconv.Atoi(strings.TrimSpace(percent))
		if is && shown && err == nil && n >= 0 && n <= 100 {
			return s.from + (s.until-s.from)*float64(n)/100, true
		}
	}
	return 0, false
}

// following converts git's progress to steps; nil without a receiver.
func following(progress func(workspace.Step), text string) func(string) {
	if progress == nil {
		return nil
	}
	return func(line string) {
		if part, ok := done(line); ok {
			progress(workspace.Step{Text: text, Done: part})
		}
	}
}

func fetching(r remote, progress func(workspace.Step)) func(string) {
	return following(progress, fetchStep(r))
}
