package model

import (
	"errors"
	"testing"
)

func TestRefusals(t *testing.T) {
	missing := errors.New("missing")
	for name, c := range map[string]struct {
		noted []error
		want  error
	}{
		"nothing":                   {nil, nil},
		"the first":                 {[]error{missing}, missing},
		"answered":                  {[]error{nil}, nil},
		"answered, then once":       {[]error{nil, missing}, nil},
		"answered, then twice":      {[]error{nil, missing, missing}, nil},
		"answered, then for good":   {[]error{nil, missing, missing, missing}, missing},
		"in between it was renewed": {[]error{nil, missing, missing, nil, missing}, nil},
		"given later":               {[]error{missing, nil}, nil},
	} {
		var r Refusals
		_, changed := r.Of("one")
		r.Note("other", missing)
		select {
		case <-changed: // another provider's: whoever waits asks again
			_, changed = r.Of("one")
		default:
			t.Errorf("%s: a refusal is not told", name)
		}
		for _, err := range c.noted {
			r.Note("one", err)
		}
		got, _ := r.Of("one")
		if got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		if c.want != nil {
			<-changed
		}
		r.Forget("one")
		if got, _ := r.Of("one"); got != nil {
			t.Errorf("%s, forgotten: %v", name, got)
		}
	}
}

// TestOutages: three requests in a row that do not reach a provider are an outage, and the latest failure is known.
func TestOutages(t *testing.T) {
	down, busy := errors.New("down"), errors.New("busy")
	const lost, answer, overload, none = 'l', 'a', 'o', 'n'
	for noted, want := range map[string]struct{ outage, latest error }{
		"": {}, "l": {nil, down}, "ll": {nil, down}, "lll": {down, down}, "allll": {down, down}, "llal": {nil, down},
		"llla": {}, "llol": {nil, down}, "lllo": {nil, busy}, "oooo": {nil, busy},
		"llln": {},
	} {
		var r Refusals
		_, changed := r.Of("one")
		for _, c := range noted {
			switch c {
			case lost:
				r.Fail("one", down, true)
			case answer:
				r.Note("one", nil)
			case none:
				r.Fail("one", nil, false)
			case overload:
				r.Fail("one", busy, false)
			}
		}
		if got := r.Outage("one"); got != want.outage {
			t.Errorf("%s: an outage: %v", noted, got)
		}
		if got := r.Latest("one"); got != want.latest {
			t.Errorf("%s: the latest: %v", noted, got)
		}
		if got, _ := r.Of("one"); got != nil {
			t.Errorf("%s: a refused credential: %v", noted, got)
		}
		if want.outage != nil {
			<-changed
		}
		if r.Forget("one"); r.Outage("one") != nil || r.Latest("one") != nil {
			t.Errorf("%s: not forgotten", noted)
		}
	}
}
