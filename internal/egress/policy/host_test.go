package policy

import "testing"

func TestParseHost(t *testing.T) {
	for in, want := range map[string]string{
		"Example.COM.": "example.com", "Host.Docker.Internal.": "host.cove.internal",
		"a.host.docker.internal": "a.host.docker.internal", "a": "a",
		"1.2.3.4": "1.2.3.4", "2130706433": "127.0.0.1", "0x7f.1": "127.0.0.1",
		"017700000001": "127.0.0.1",
		"127.1":        "127.0.0.1", "0": "0.0.0.0", "1.1.1.1.": "1.1.1.1", "[::1]": "::1", "[::ffff:127.0.0.1]": "127.0.0.1",
		"bücher.example": "xn--bcher-kva.example",
		"１２７.０.０.１":      "127.0.0.1", "xn--bcher-kva.example": "xn--bcher-kva.example",
		"r3---sn-x.example": "r3---sn-x.example",
		"":                  "", "a..b": "", "1.2.3.4.5": "", "256.1.1.1": "", "a.1": "", "a b": "", "a\x00b": "",
		"[1.2.3.4]": "", "[::1": "", "a]": "", "[::1%25eth0]": "", "a_b": "", "-a": "", "xn--a": "", ".": "", "..": "",
	} {
		h, err := ParseHost(in)
		if got := h.String(); (err != nil) != (want == "") || err == nil && got != want {
			t.Errorf("ParseHost(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
}
