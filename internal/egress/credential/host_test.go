package credential

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
)

func hostWith(t *testing.T, described string, takes bool) Host {
	t.Helper()
	own, err := Parse("credentials.yaml", []byte("credentials:\n"+described))
	if err != nil {
		t.Fatal(err)
	}
	return Host{Own: func() ([]Credential, error) { return own, nil }, Values: NewValues(clock.Real()),
		TakesVariables: takes}
}

// TestHost: what there is of credentials is known by name and source, and what to do about the others.
func TestHost(t *testing.T) {
	noAnthropic(t)
	t.Setenv("OPENAI_API_KEY", "sk-a-key-of-this-machine")
	ran := filepath.Join(t.TempDir(), "ran")
	h := hostWith(t, "  - {name: vault, source: [command, touch, "+ran+"], to: [{hosts: a.example, form: bearer}]}\n"+
		"  - {name: openai, source: 'env:MY_KEY', to: [{hosts: b.example, form: bearer}]}\n", false)
	for _, try := range []bool{false, true} {
		all, err := h.All(t.Context(), try)
		if err != nil {
			t.Fatal(err)
		}
		of := map[string]State{}
		var names []string
		for _, s := range all {
			of[s.Name] = s
			names = append(names, s.Name)
		}
		if !slices.IsSorted(names) || len(of) != len(all) {
			t.Errorf("named twice, or not in order: %v", names)
		}
		a := of["anthropic"]
		if !a.Tried || a.From != "" || !strings.Contains(cove.ErrorHint(a.Problem), "export ANTHROPIC_API_KEY=… (or ") ||
			!strings.Contains(cove.ErrorHint(a.Problem), "log in to Claude Code, on the host") {
			t.Errorf("anthropic: %+v", a)
		}
		if o := of["openai"]; !slices.Equal(o.Sources, []string{"env:MY_KEY"}) || o.Problem == nil {
			t.Errorf("an own one does not replace the preset: %+v", o)
		}
		if v := of["vault"]; v.Tried != try {
			t.Errorf("a program, with try %v: %+v", try, v)
		}
		if _, err := os.Stat(ran); (err == nil) != try {
			t.Errorf("with try %v the program has run: %v", try, err == nil)
		}
	}
	if _, err := h.Ready(t.Context(), "nothing"); cove.ErrorCode(err) != cove.NotFound {
		t.Error(err)
	}
}

// TestTake: variables of a command replace those of a server in the background, and of no other.
func TestTake(t *testing.T) {
	const described = "  - {name: tracker, source: 'env:TRACKER_KEY', to: [{hosts: a.example, form: bearer}]}\n" +
		"  - {name: vault, source: [command, printenv, GH_TOKEN], to: [{hosts: b.example, form: bearer}]}\n"
	t.Setenv("TRACKER_KEY", "the-key-of-the-server")
	t.Setenv("GH_TOKEN", "the-token-of-the-server")
	read := func(h Host, name string) string {
		t.Helper()
		own, _ := h.Own()
		chosen, err := Choose(own, name)
		if err != nil {
			t.Fatal(err)
		}
		probe := chosen[0].Bindings[0].probes[0]
		l, err := h.Values.get(t.Context(), chosen[0].Source, probe.host, probe.port)
		if err != nil {
			t.Fatal(err)
		}
		return l.value.Reveal()
	}
	for _, takes := range []bool{false, true} {
		h := hostWith(t, described, takes)
		read(h, "vault") // and its value is kept
		if _, err := h.Take(map[string]string{"TRACKER_KEY": "another-key", "LD_PRELOAD": "x"}); err == nil ||
			!strings.Contains(cove.ErrorHint(err), "TRACKER_KEY") || read(h, "tracker") != "the-key-of-the-server" {
			t.Errorf("a variable that no credential reads: %v", err)
		}
		given := map[string]string{"TRACKER_KEY": "a-key-of-the-shell", "GH_TOKEN": "a-token-of-the-shell"}
		got, err := h.Take(given)
		want, kept := []string{"GH_TOKEN", "TRACKER_KEY"}, []string(nil)
		if !takes {
			want, kept = kept, want
		}
		if err != nil || !slices.Equal(got.Changed, want) || !slices.Equal(got.Kept, kept) {
			t.Errorf("takes %v: %+v, %v", takes, got, err)
		}
		if is := read(h, "tracker") == given["TRACKER_KEY"]; is != takes {
			t.Errorf("takes %v: the key is the shell's: %v", takes, is)
		}
		if is := read(h, "vault") == given["GH_TOKEN"]; is != takes {
			t.Errorf("takes %v: what a program reads is the shell's: %v", takes, is)
		}
	}
	if got, err := hostWith(t, described, true).Take(map[string]string{"GH_TOKEN": "a-token-of-the-shell"}); err != nil ||
		len(got.Changed)+len(got.Kept) != 0 {
		t.Errorf("the same again: %+v, %v", got, err)
	}
}
