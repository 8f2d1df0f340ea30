package source

import (
	"strings"
	"testing"
)

func TestAbsolute(t *testing.T) {
	zeros := strings.Repeat("0", 64)
	for in, want := range map[string]string{"": "", "host": "host", "python:3": "python:3", "dir:root": "dir:/w/root",
		"tar:../r.tar": "tar:/r.tar", "oci:/x": "oci:/x",
		"docker-archive:x.tar:app:1": "docker-archive:/w/x.tar:app:1", "sha256:" + zeros: "sha256:" + zeros, "dir:": "dir:"} {
		if got := Absolute(in, "/w"); got != want {
			t.Errorf("Absolute(%q) = %q, want %q", in, got, want)
		}
	}
}
