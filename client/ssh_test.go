package client

import (
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
)

// TestSSHAddress: an address becomes arguments of ssh, and none of it an option or a command of a shell.
func TestSSHAddress(t *testing.T) {
	for address, want := range map[string]string{
		"ssh://build":           "-- build cove server connect",
		"ssh://build/":          "-- build cove server connect",
		"ssh://ada@build:2222":  "-l ada -p 2222 -- build cove server connect",
		"ssh://[2001:db8::1]":   "-- 2001:db8::1 cove server connect",
		"ssh://ada@h1.example":  "-l ada -- h1.example cove server connect",
		"ssh://a.b%40c@h:22":    "-l a.b@c -p 22 -- h cove server connect",
		"ssh://10.0.0.7:65535/": "-p 65535 -- 10.0.0.7 cove server connect",
	} {
		h, err := parseSSH(address)
		if got := strings.Join(h.arguments(), " "); err != nil || !strings.HasSuffix(got, "LogLevel=ERROR "+want) {
			t.Errorf("%s: %q, %v", address, got, err)
		}
	}
	for _, address := range []string{
		"ssh:", "ssh://", "ssh:build", "ssh://-oProxyCommand=id", "ssh://-l@build", "ssh://ada:secret@build",
		"ssh://build/run/cove.sock", "ssh://build?x", "ssh://build#x", "ssh://build:port", "ssh://$(id)", "ssh://a%20b",
		"ssh://a;b@build", "ssh://[fe80::1%25a;b]",
	} {
		_, err := New(Options{Address: address})
		if cove.ErrorCode(err) != cove.InvalidArgument || cove.ErrorHint(err) == "" ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// TestSSHFailure: what ssh and the other machine say is the reason, and the hint is a command to try.
func TestSSHFailure(t *testing.T) {
	h := sshHost{user: "ada", name: "build", port: "2222"}
	for _, c := range []struct {
		name string
		code int
		said string
		want []string
	}{
		{"ssh", 255, "Warning: a key was added.\r\nada@build: Permission denied (publickey).\r\n",
			[]string{"the server on build: ada@build: Permission denied (publickey).",
				`"ssh -p 2222 -l ada build true" has to work`}},
		{"no cove", 127, "bash: line 1: cove: command not found\n",
			[]string{"there is no cove on build", `"ssh -p 2222 -l ada build printenv PATH"`}},
		{"of Cove", 123, "noise\ncove: the server does not start: its port is taken\n  end the other one\n",
			[]string{"on build: the server does not start: its port is taken", "end the other one"}},
		{"silent", 1, "", []string{"it says nothing", "build cove server status"}},
		{"cut off", 255, strings.Repeat("x", maxSaid), []string{"xxx"}},
	} {
		err := h.failure(c.code, []byte(c.said))
		text := err.Error() + " " + cove.ErrorHint(err)
		if cove.ErrorCode(err) != cove.Unavailable ||
			slices.ContainsFunc(c.want, func(w string) bool { return !strings.Contains(text, w) }) {
			t.Errorf("%s: %s", c.name, text)
		}
	}
}

// TestBeginning: a host that never ceases to talk fills no memory.
func TestBeginning(t *testing.T) {
	var b beginning
	for range 3 {
		if n, err := b.Write(make([]byte, maxSaid-1)); n != maxSaid-1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	if len(b.text) != maxSaid {
		t.Errorf("kept %d bytes", len(b.text))
	}
}
