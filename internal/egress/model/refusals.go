package model

import "sync"

// Refusals keep, for each provider, whether it has refused the credential of the latest requests, and whether they have
// reached it. The zero value is ready.
type Refusals struct {
	mu      sync.Mutex
	of      map[string]*refusals
	changed chan struct{} // closed, and made anew, when more requests become pointless
}

type refusals struct {
	answered bool  // it has accepted a credential once
	row      int   // refusals since
	last     error // of them
	lost     int   // latest requests in a row that have not reached it
	failed   error // why the latest request has no usable answer
}

// patience is how many refusals in a row count of a provider that has answered before: a login that is being renewed is
// missing for a moment. It is also how many requests in a row that do not reach a provider are an outage.
const patience = 3

// Note records what became of the credential of a request: nil is an answer of the provider, err says why there was
// none.
func (r *Refusals) Note(provider string, err error) {
	r.note(provider, func(p *refusals) {
		if err == nil {
			*p = refusals{answered: true}
			return
		}
		p.row, p.last, p.failed, p.lost = p.row+1, err, err, 0
	})
}

// Fail records that a request has no usable answer, for a reason that is not its credential. lost reports that it has
// not reached the provider. Without an error it has an answer, which shows nothing of the credential.
func (r *Refusals) Fail(provider string, err error, lost bool) {
	r.note(provider, func(p *refusals) {
		p.lost, p.failed = p.lost+1, err
		if !lost {
			p.lost = 0
		}
	})
}

func (r *Refusals) note(provider string, change func(*refusals)) {
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
	change(p)
	if (p.counts() || p.out()) && r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// counts reports whether more requests with the credential are pointless.
func (p *refusals) counts() bool { return p.row >= patience || p.row > 0 && !p.answered }

// out reports an outage.
func (p *refusals) out() bool { return p.lost >= patience }

// Of returns why more requests to a provider are pointless, since it refuses their credential; nil if they are not. The
// channel is closed when a refusal or an outage counts.
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

// Outage returns why the latest requests have not reached a provider; nil if one has.
func (r *Refusals) Outage(provider string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.of[provider]; p != nil && p.out() {
		return p.failed
	}
	return nil
}

// Latest returns why the latest request to a provider has no usable answer; nil if it has one.
func (r *Refusals) Latest(provider string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.of[provider]; p != nil {
		return p.failed
	}
	return nil
}

// Forget forgets the refusals of a provider: its credential may be another one now.
func (r *Refusals) Forget(provider string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, provider)
}
