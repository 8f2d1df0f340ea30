package policy

import (
	"testing"
)

// TestMayForce: git of a hidden repository takes a forced push where the gateway
// would allow it or ask, and nowhere else.
func TestMayForce(t *testing.T) {
	const remote = "https://git.example/o/r.git"
	repository, err := ForRepository("repository", remote, "own", nil, false)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		text, remote string
		want         bool
	}{
		"nothing said":         {"", remote, false},
		"allowed":              {"{remote: 'https://git.example/o/r', push: [own], force: allow}", remote, true},
		"asked":                {"{remote: 'https://git.example/o/r', push: [own], force: ask}", remote, true},
		"denied":               {"{remote: 'https://git.example/o/r', push: [own], force: deny}", remote, false},
		"of another":           {"{remote: 'https://git.example/o/other', push: [own], force: allow}", remote, false},
		"of all, less exactly": {"{remote: 'https://git.example/o/**', push: [own], force: allow}", remote, false},
		"at another port":      {"{remote: 'https://git.example:8443/o/r', push: [own], force: allow}", remote, false},
		"without a remote":     {"{remote: 'https://git.example/o/r', push: [own], force: allow}", "", false},
		"on this machine":      {"", "http://127.0.0.1/o/r", false},
	} {
		layers := []*Document{repository}
		if c.text != "" {
			d, err := Parse("p.yaml", []byte("mode: limited\ngit: ["+c.text+"]\n"))
			if err != nil {
				t.Fatal(err)
			}
			layers = append(layers, d)
		}
		if got, err := MayForce(layers, c.remote); err != nil || got != c.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// TestUnshared: one document that denies the cache of packages is enough, whatever others say.
func TestUnshared(t *testing.T) {
	const deny, allow = "package_cache: deny\n", "package_cache: allow\n"
	for want, texts := range map[bool][][]string{
		true:  {{deny}, {deny, allow}, {allow, deny, "mode: open\nmerge: replace\n"}},
		false: {{}, {allow}, {"mode: open\n"}},
	} {
		for _, layers := range texts {
			p := compile(t, Machine{}, layers...)
			if Unshared(p) != want {
				t.Errorf("%q: %v", layers, Unshared(p))
			}
		}
	}
	if Unshared(nil) {
		t.Error("no policy")
	}
}
