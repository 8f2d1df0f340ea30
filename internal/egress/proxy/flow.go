package proxy

import (
	"sync"
	"sync/atomic"

	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// flow is an activity that policy allowed and that ends when policy no longer allows it.
type flow struct {
	request     policy.Request
	passThrough bool // TLS is not intercepted, which policy allowed too
	cut         func()
}

// flows holds all flows of a sandbox. A flow is added before policy is asked, so that Rejudge finds everything that a
// replaced policy has allowed.
type flows struct {
	changes atomic.Int64 // of policy, for callers that ask policy before they have a flow

	mu  sync.Mutex
	all map[*flow]struct{} // guarded by mu
}

func (fs *flows) add(f *flow) *flow {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.all == nil {
		fs.all = map[*flow]struct{}{}
	}
	fs.all[f] = struct{}{}
	return f
}

func (fs *flows) remove(f *flow) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	delete(fs.all, f)
}

func (fs *flows) passes(f *flow) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f.passThrough = true
}

func (fs *flows) rejudge(judge func(policy.Request) policy.Verdict) (cut int) {
	fs.changes.Add(1)
	for _, f := range fs.those(func(f *flow) bool {
		v := judge(f.request)
		return v.Action != policy.Allow || f.passThrough && !v.PassThrough
	}) {
		f.cut()
		cut++
	}
	return cut
}

func (fs *flows) cutAll() {
	for _, f := range fs.those(func(*flow) bool { return true }) {
		f.cut()
	}
}

func (fs *flows) those(which func(*flow) bool) (found []*flow) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for f := range fs.all {
		if which(f) {
			found = append(found, f)
		}
	}
	return found
}
