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
