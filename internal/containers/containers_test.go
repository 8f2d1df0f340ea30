package containers

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cove-sandbox/cove"
)

const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// TestParse: Docker and Podman describe a container in one form. Docker begins its name with a slash.
func TestParse(t *testing.T) {
	for name, text := range map[string]string{
		"docker": `[{"Id": "` + id + `", "Name": "/box", "State": {"Status": "running", "Running": true, "Pid": 7,
			"StartedAt": "now"},
			"HostConfig": {"NetworkMode": "none", "Privileged": true}}]`,
		"podman": `[{"Id": "` + id + `", "Name": "box", "State": {"Status": "running", "Running": true, "Pid": 7,
			"ConmonPid": 6, "StartedAt": "now"}, "HostConfig": {"NetworkMode": "none", "Privileged": true}}]`,
	} {
		got, err := parse([]byte(text))
		if want := []Container{{id, "box", 7, "none", true, "now"}}; err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for _, text := range []string{"", "{}", "[{}]", `[{"Id": 7}]`} {
		if got, err := parse([]byte(text)); err == nil {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

// TestFind: an engine is found by its name, or the first that is installed.
func TestFind(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if _, err := Find(""); cove.ErrorCode(err) != cove.NotFound {
		t.Errorf("none is installed: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "podman"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]cove.Code{"": "", "podman": "", "docker": cove.NotFound,
		"runc": cove.InvalidArgument} {
		if e, err := Find(name); cove.ErrorCode(err) != want || err == nil && e.program != "podman" {
			t.Errorf("%q: %+v, %v", name, e, err)
		}
	}
}

// TestHas: this process is in the control groups of no container.
func TestHas(t *testing.T) {
	if (Container{ID: id}).Has(os.Getpid()) || (Container{}).Has(os.Getpid()) {
		t.Error("this process is in a container")
	}
}

// TestVouched: a label counts if the owner alone can have set it.
func TestVouched(t *testing.T) {
	const secret = "cove.devcontainer=abcdefghijklmnopqrstuvwxyz"
	ofFile := map[string]string{"devcontainer.local_folder": "/x", "a": "b", "cove.devcontainer": secret[18:]}
	for _, c := range []struct {
		label            string
		container, image map[string]string
		counts           bool
	}{
		{"a=b", map[string]string{"a": "b"}, nil, true},
		{"a", map[string]string{"a": "b"}, map[string]string{"c": "d"}, true},
		{"a=b", map[string]string{"a": "b"}, map[string]string{"a": "c"}, true},
		{"a=b", map[string]string{"a": "b"}, map[string]string{"a": "b"}, false},
		{"a", map[string]string{"a": ""}, map[string]string{"a": ""}, false},
		{"a=b", ofFile, nil, false},
		{"devcontainer.local_folder=/x", ofFile, nil, false},
		{"cove.devcontainer", ofFile, nil, false},
		{"cove.devcontainer=x", ofFile, nil, false},
		{secret, ofFile, nil, true},
		{secret, ofFile, ofFile, false},
		{"a=b", map[string]string{"a": "b", "com.docker.compose.project": "x"}, nil, false},
	} {
		if why := vouched(c.label, c.container, c.image); (why == "") != c.counts {
			t.Errorf("%s of %v, image %v: %q", c.label, c.container, c.image, why)
		}
	}
	for _, c := range []struct{ chosen, want string }{{"box", "box"}, {id[:12], id[:12]}, {id, id[:12]}, {"", id[:12]}} {
		if got := (Choice{Name: c.chosen}).Client(Container{ID: id, Name: "box"}); got != c.want {
			t.Errorf("%q: %s", c.chosen, got)
		}
	}
}
