package gateway

import (
	"slices"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	git "github.com/cove-sandbox/cove/internal/git/policy"
)

// gitRepos are the repositories for which a sandbox has sent requests.
type gitRepos struct {
	mu  sync.Mutex
	all *simplelru.LRU[string, *gitRepo]
}

// maxRepos bounds the repositories of a sandbox with state. The server is asked again about any other.
const maxRepos = 64

func (g *gitRepos) of(name string) *gitRepo {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all == nil {
		g.all, _ = simplelru.NewLRU[string, *gitRepo](maxRepos, nil) // the size is positive
	}
	r, ok := g.all.Get(name)
	if !ok {
		r = &gitRepo{shown: map[string]bool{}, gone: map[string]string{}}
		g.all.Add(name, r)
	}
	return r
}

// gitRepo is the state of a repository for one sandbox: the objects that it has seen, and its pushes.
type gitRepo struct {
	mu    sync.Mutex
	head  string
	shown map[string]bool   // object ids of refs it sees
	gone  map[string]string // deleted refs, with their last object id
	whole bool              // the server cannot leave objects out
}

// learn records the features of a server for fetches, in version 2.
func (r *gitRepo) learn(features []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.whole = !slices.Contains(features, "filter")
}

func (r *gitRepo) isWhole() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.whole
}

// maxShown bounds the object ids that are remembered; beyond it they are forgotten together.
const maxShown = 600_000

func (r *gitRepo) headOf() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.head
}

func (r *gitRepo) found(head string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.head = head
}

func (r *gitRepo) show(_, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.shown) >= maxShown {
		r.shown = map[string]bool{}
	}
	r.shown[id] = true
}

// missing returns the ids that were not shown.
func (r *gitRepo) missing(ids []string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return r.shown[id] })
}

// was returns the last object id of a ref that the sandbox has deleted, or "".
func (r *gitRepo) was(ref string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gone[ref]
}

// maxGone bounds the deletions that are remembered.
const maxGone = 10_000

// made records the updates of a push that the server has made.
func (r *gitRepo) made(updates []git.Update) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, u := range updates {
		if !u.Deletes() {
			r.shown[u.New] = true
			delete(r.gone, u.Ref)
		} else if len(r.gone) < maxGone {
			r.gone[u.Ref] = u.Old
		}
	}
}
