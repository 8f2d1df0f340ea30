package session

import (
	"testing"

	"github.com/cove-sandbox/cove"
)

// TestProblemOf: the hint of an error is a field of its own, and no part of its text, as in the API.
func TestProblemOf(t *testing.T) {
	err := cove.Errorf(cove.NotFound, "there is none").WithHint("make one")
	want := Problem{Error: "there is none", Code: "not_found", Hint: "make one"}
	if got := ProblemOf(&Session{}, err); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
