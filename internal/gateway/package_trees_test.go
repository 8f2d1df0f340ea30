package gateway

import (
	"crypto/sha512"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/credential"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/engine"
)

// shown returns the content that a new sandbox of an owner finds in npm's own files for the package of the lab: "" if
// there is none, and "no files" where it is shown nothing.
func (l *registryLab) shown(t *testing.T, owner cove.Principal, rules, content string, credentials ...string) string {
	t.Helper()
	r, err := l.gateway.Open(Spec{Sandbox: cove.NewSandboxID(), Name: "test", Owner: owner, Credentials: credentials,
		Policy: []*policy.Document{document(t, rules)}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var b engine.Binding
	defer func() { b.Close() }()
	if err := r.Bind(&b, engine.Rootfs{}); err != nil {
		t.Fatal(err)
	}
	if b.Overlay == nil {
		return "no files"
	}
	sum := sha512.Sum512([]byte(content))
	name := hex.EncodeToString(sum[:])
	if b.Overlay.Name != ".npm" || len(b.Overlay.Lower) != 1 {
		t.Errorf("%+v", b.Overlay)
	}
	data, _ := os.ReadFile(filepath.Join(b.Overlay.Lower[0].Name(), "_cacache/content-v2/sha512", name[:2], name[2:4],
		name[4:]))
	return string(data)
}

// TestPackageTrees: what sandboxes of an owner got by the cache, later ones of that owner have as npm's own, if they
// may read everything from the registry.
func TestPackageTrees(t *testing.T) {
	l := newRegistryLab(t, nil)
	one, two := cove.KeyHolder("one"), cove.KeyHolder("two")
	ask(t, l.sandboxOf(t, one, allowAll), "GET", wheel)
	if got := l.shown(t, one, allowAll, "tarball"); got != "no files" {
		t.Errorf("before anything is installed there is %q", got)
	}
	ask(t, l.sandboxOf(t, one, allowAll), "GET", tarball)
	if got := l.shown(t, one, allowAll, "tarball"); got != "tarball" {
		t.Errorf("the same owner has %q", got)
	}
	if got := l.shown(t, two, allowAll, "tarball"); got != "no files" {
		t.Errorf("another owner has %q", got)
	}
	ask(t, l.sandboxOf(t, two, allowAll), "GET", tarball) // from the cache
	if got := l.shown(t, two, allowAll, "tarball"); got != "tarball" || l.count(tarball) != 1 {
		t.Errorf("after it has asked another owner has %q, asked %d times", got, l.count(tarball))
	}
	const host = "rules: [{hosts: npm.example.com"
	for rules, want := range map[string]string{
		"mode: open":                              "tarball",
		host + ", methods: [GET, HEAD]}]":         "tarball",
		host + ", methods: [POST]}]":              "no files",
		host + ", paths: /tiny/**}]":              "no files",
		host + ", ports: 8443}]":                  "no files",
		host + ", action: ask}]":                  "no files",
		"mode: open\n" + host + ", action: ask}]": "no files",
		host + "}, {hosts: npm.example.com, action: deny, paths: /other/**}]":       "no files",
		host + "}, {hosts: npm.example.com, action: deny, methods: [PUT, POST]}]":   "tarball",
		"package_cache: deny\n" + allowAll:                                          "no files",
		"rules: [{hosts: pypi.example.com}]":                                        "no files",
		"mode: open\n" + host + ", action: deny}]":                                  "no files",
		host + ", paths: /x}, {hosts: '*.example.com', action: ask, methods: GET}]": "no files",
	} {
		if got := l.shown(t, one, rules, "tarball"); got != want {
			t.Errorf("with %q there is %q, want %q", rules, got, want)
		}
	}
}

// TestNoTreeOfOthers: what is not what the index states, or was asked for with a credential, is in no tree.
func TestNoTreeOfOthers(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("secret-of-the-registry"), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := credential.Parse("test", []byte("credentials: [{name: team, source: 'file:"+key+
		"', to: [{form: bearer, hosts: npm.example.com}]}]"))
	if err != nil {
		t.Fatal(err)
	}
	l := newRegistryLab(t, func(o *Options) {
		o.Described = func() (Described, error) { return Described{Credentials: all}, nil }
	})
	owner := cove.KeyHolder("one")
	none := func(what, content string) {
		t.Helper()
		if got := l.shown(t, owner, allowAll, content); got != "no files" {
			t.Errorf("%s: %q", what, got)
		}
	}
	ask(t, l.sandboxOf(t, owner, allowAll, "team"), "GET", tarball)
	none("with the machine's credential", "tarball")
	ask(t, l.sandboxOf(t, owner, allowAll), "GET", tarball, "Authorization", "Bearer of-its-own")
	none("with a credential of its own", "tarball")
	ask(t, l.sandboxOf(t, owner, allowAll), "GET", tarball, "Cookie", "a=b")
	none("with a cookie", "tarball")
	l.serve(tarball, says("poison"))
	ask(t, l.sandboxOf(t, owner, allowAll), "GET", tarball)
	none("poisoned", "poison")
	l.serve(tarball, says("tarball"))
	l.serve(versionOf, nil)
	ask(t, l.sandboxOf(t, owner, allowAll), "GET", tarball)
	none("not in the index", "tarball")

	l.serve(versionOf, says(npmDocument("tarball")))
	ask(t, l.sandboxOf(t, owner, allowAll), "GET", tarball)
	if got := l.shown(t, owner, allowAll, "tarball"); got != "tarball" {
		t.Errorf("without a credential there is %q", got)
	}
	if got := l.shown(t, owner, allowAll, "tarball", "team"); got != "no files" {
		t.Errorf("a sandbox with a credential for the registry has %q", got)
	}
}
