package ui

import "testing"

func TestNearest(t *testing.T) {
	names := []string{"python", "node", "ps", "push", "pr", "stop"}
	for word, want := range map[string]string{"pyton": "python", "pyt": "python", "nodee": "node", "psuh": "push",
		"rm": "", "": "", "xxxx": "", "pytohn": "python", "ndoe": "node"} {
		if got := Nearest(word, names); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
}
