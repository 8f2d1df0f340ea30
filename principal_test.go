package cove

import "testing"

func TestPrincipalText(t *testing.T) {
	for _, c := range []struct {
		p    Principal
		text string
	}{
		{Principal{}, ""},
		{MachineOwner(), "local"},
		{KeyHolder("ci"), "key:ci"},
		{KeyHolder("local"), "key:local"},
		{LocalUser(1000), "uid:1000"},
		{Address("127.0.0.1"), "ip:127.0.0.1"},
		{RegisteredClient("builder"), "builder"},
		{InSandbox("brave-otter"), "sandbox:brave-otter"},
	} {
		if got := c.p.String(); got != c.text {
			t.Errorf("%#v is written as %q, not as %q", c.p, got, c.text)
		}
		if got := ParsePrincipal(c.text); got != c.p {
			t.Errorf("%q is read as %#v, not as %#v", c.text, got, c.p)
		}
	}
	for part, text := range map[string]string{"": "", "agents": "cove:agents"} {
		if got := System(part).String(); got != text {
			t.Errorf("part %q of Cove is written as %q, not as %q", part, got, text)
		}
	}
}

func TestPrincipalSees(t *testing.T) {
	all := []Principal{MachineOwner(), System(""), System("agents"), KeyHolder("a"), KeyHolder("b"), LocalUser(0),
		LocalUser(1000),
		Address("127.0.0.1"), Address("::1"), RegisteredClient("a"), InSandbox("a"), {}, {Tenant: "t"}}
	for _, p := range all {
		for _, owner := range all {
			want := p.SeesAll() || p == owner && p != Principal{} && p != Principal{Tenant: "t"}
			if got := p.Sees(owner); got != want {
				t.Errorf("%q sees what %q owns: %v, not %v", p, owner, got, want)
			}
		}
	}
	theirs := KeyHolder("a")
	theirs.Tenant = "t"
	if theirs.Sees(KeyHolder("a")) || KeyHolder("a").Sees(theirs) {
		t.Error("a key sees what a key of its name in another tenant owns")
	}
}

// FuzzParsePrincipal: every text is read, written again as it was, and gives the
// power to see everything to the machine's owner alone.
func FuzzParsePrincipal(f *testing.F) {
	for _, s := range []string{"", "local", "Local", "local\x00", "key:", "key:ci", "uid:0", "uid:01", "uid:+1",
		"uid:4294967296", "ip:::1", "cove:agents", "cove:", "sandbox:x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p := ParsePrincipal(s)
		if p.String() != s {
			t.Errorf("%q is written as %q", s, p)
		}
		if p.SeesAll() != (s == "local") || p.IsOwner() != (s == "local") {
			t.Errorf("%q sees everything: %v, owns the machine: %v", s, p.SeesAll(), p.IsOwner())
		}
		if q := ParsePrincipal(s + "x"); p.Sees(q) && s != "local" {
			t.Errorf("%q sees what %q owns", s, q)
		}
	})
}
