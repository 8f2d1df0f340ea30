package report

import (
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// TestPatchAtATerminal: a terminal gets its own colours and obeys nothing that the patch has, however it is cut.
func TestPatchAtATerminal(t *testing.T) {
	const patch = "diff --git a/a b/a\n@@ -1 +1 @@ f()\n-old\n+\tnew \x1b]0;owned\a\u202e\n plain\nlast"
	const want = "\x1b[1mdiff --git a/a b/a\x1b[0m\n\x1b[36m@@ -1 +1 @@ f()\x1b[0m\n\x1b[31m-old\x1b[0m\n\x1b[32m+\tnew " +
		"\\x1b]0;owned\\x07\\u202e\x1b[0m\n plain\nlast\n"
	for size := 1; size <= len(patch); size++ {
		var got strings.Builder
		w := &PatchWriter{To: &got, Color: true}
		for rest := patch; rest != ""; {
			n := min(size, len(rest))
			if _, err := w.Write([]byte(rest[:n])); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if got.String() != want {
			t.Fatalf("in pieces of %d: %q, want %q", size, got.String(), want)
		}
	}
}

func FuzzPatchWriter(f *testing.F) {
	f.Add("+a\x1b[2J\r\n-\xff\n")
	f.Fuzz(func(t *testing.T, patch string) {
		var got strings.Builder
		w := &PatchWriter{To: &got}
		w.Write([]byte(patch))
		w.Close()
		for _, r := range got.String() {
			if r != '\t' && ui.Obeyed(r) {
				t.Fatalf("%q came through in %q", r, got.String())
			}
		}
	})
}

// TestDeciding: what is fetched, and what is applied, is named where it runs on the person's machine.
func TestDeciding(t *testing.T) {
	changes := []api.WorkChange{{Path: "a", Change: "added"}, {Path: "lefthook-local.yml", Change: "added"},
		{Path: "s/objects/k", Change: "added"}, {Path: "s/refs/k", Change: "added"}, {Path: "s/config", Change: "changed"},
		{Path: ".npmrc", Change: "changed"}, {Path: "AGENTS.md", Change: "deleted"},
		{Path: ".vscode", Change: "added", NewMode: "120000"}}
	if got := strings.Join(Deciding(changes), "|"); !strings.HasSuffix(got,
		": lefthook-local.yml, s/objects/k, s/refs/k, s/config, .vscode") {
		t.Errorf("%q", got)
	}
	if got := AppliedNotes(changes, "/nowhere"); len(got) != 2 || !strings.HasSuffix(got[1], "obeyed: .npmrc") {
		t.Errorf("%q", got)
	}
	if got := Deciding(changes[:1]); got != nil {
		t.Errorf("%q", got)
	}
}
