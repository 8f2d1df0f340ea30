package pattern

import (
	"slices"
	"testing"
)

func TestPattern(t *testing.T) {
	p := New(`^(a+)b$`)
	if p.re != nil {
		t.Error("it is compiled before it is used")
	}
	if !p.MatchString("aab") || p.MatchString("b") {
		t.Error("it does not match as it should")
	}
	if got := p.FindStringSubmatch("aab"); !slices.Equal(got, []string{"aab", "aa"}) {
		t.Errorf("%q", got)
	}
	if p.Regexp() != p.Regexp() {
		t.Error("it is compiled twice")
	}
	defer func() {
		if recover() == nil {
			t.Error("an invalid one can be used")
		}
	}()
	New(`(`).MatchString("")
}
