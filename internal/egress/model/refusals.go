package model

import "sync"

// Refusals keep, for each provider, whether it has refused the credential of the latest requests. The zero value is
// ready.
type Refusals struct {
	mu      sync.Mutex
	of      map[string]*refusals
	changed chan struct{} // closed, and made anew, when a refusal counts
}

type refusals struct {
	answered bool // it has accepted a credential once
	row      int  // refusals since
	last     error
}

// patience is how many refusals in a row count of a provider that has answered before: a login that is being renewed is
// missing for a moment.
const patience = 3

// Note records what became of the credential of a request: nil is an answer of the provider, err says why there was
// none.
func (r *Refusals) Note(provider string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[string]*refusals{}
	}
	p := r.of[provider]
	if p == nil {
		p = &refusals{}
		r.of[provider] = p
	}
	if err == nil {
		*p = refusals{answered: true}
		return
	}
	p.row, p.last = p.row+1, err
	if p.counts() && r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// counts reports whether more requests are pointless.
func (p *refusals) counts() bool { return p.row >= patience || p.row > 0 && !p.answered }

// Of returns why more requests to a provider are pointless, nil if they are not, and a channel that is closed when a
// refusal counts.
func (r *Refusals) Of(provider string) (err error, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	if p := r.of[provider]; p != nil && p.counts() {
		err = p.last
	}
	return err, r.changed
}

// Forget forgets the refusals of a provider: its credential may be another one now.
func (r *Refusals) Forget(provider string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, provider)
}
