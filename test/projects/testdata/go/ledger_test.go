package ledger

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMove(t *testing.T) {
	l := Ledger{"ada": 500}
	if err := l.Move("ada", "bob", 200); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Ledger{"ada": 300, "bob": 200}, l); diff != "" {
		t.Errorf("after a move (-want +got):\n%s", diff)
	}
}

func TestMoveTooMuch(t *testing.T) {
	l := Ledger{"ada": 5}
	if err := l.Move("ada", "bob", 200); err == nil {
		t.Error("200 of 5 were moved")
	}
	if diff := cmp.Diff(Ledger{"ada": 5}, l); diff != "" {
		t.Errorf("after a refused move (-want +got):\n%s", diff)
	}
}
