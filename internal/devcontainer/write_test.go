package devcontainer

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tailscale/hujson"

	"github.com/cove-sandbox/cove"
)

var confined = Confinement{Dir: "/home/u/.cove/x", Capabilities: []string{"CHOWN"}, Seccomp: "seccomp.json",
	Env: map[string]string{"SSL_CERT_FILE": "/etc/cove/ca.crt"}, Wait: "wait", Label: "cove.devcontainer=secret",
	Guards: func(string) (map[string]bool, []string, error) {
		return map[string]bool{".git": false, ".git/hooks": true}, []string{".envrc"}, nil
	}}

// written returns the members of a written file, what was said, as KEY, and what belongs to the file.
func written(t *testing.T, path, text string) (all map[string]any, said []string, made Files) {
	t.Helper()
	w, err := write(t, path, text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	made = w.Files
	standard, err := hujson.Standardize(bytes.Clone(made["devcontainer.json"]))
	if err != nil {
		t.Fatalf("%v: %s", err, made)
	}
	if err := json.Unmarshal(standard, &all); err != nil {
		t.Fatalf("%v: %s", err, made)
	}
	for _, note := range w.Notes {
		if key, _, is := strings.Cut(note, " is left out: "); is {
			_, key, _ = strings.Cut(key, ": ")
			said = append(said, key)
		}
	}
	return all, said, made
}

func write(t *testing.T, path, text string) (*Written, error) {
	t.Helper()
	f, c := File{path, []byte(text)}, users
	checkout := fstest.MapFS{"Dockerfile": {Data: []byte("FROM a")}, ".devcontainer/Dockerfile": {Data: []byte("FROM b")},
		".dockerignore": {Data: []byte("x")}, "data": {Data: []byte("/"), Mode: fs.ModeSymlink},
		".devcontainer/f/devcontainer-feature.json": {Data: []byte(`{"id": "f", "version": "1.0.0"}`)},
		".devcontainer/f/install.sh":                {},
		".devcontainer/bind/devcontainer-feature.json": {Data: []byte(`{"id": "bind",
			"mounts": ["type=bind,source=/,target=/h"]}`)},
		".devcontainer/bind/install.sh": {}}
	c.Checkout = checkout
	e, err := Evaluate(f, c)
	if err != nil {
		return nil, err
	}
	files, err := Referred(checkout, e.Refers)
	if err != nil {
		t.Fatal(err)
	}
	more, err := AddFeatures(checkout, e, c)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(files, more)
	return Write(f, e, files, c, confined)
}

// TestWriteMember: what a property becomes, and what is said. A member with null is not there.
func TestWriteMember(t *testing.T) {
	const in = ".devcontainer/devcontainer.json"
	for _, c := range []struct{ path, text, member, want, said string }{
		{in, `{"image": "a", "privileged": true}`, "privileged", `null`, "privileged"},
		{in, `{"image": "a", "privileged": false}`, "privileged", `null`, ""},
		{in, `{"image": "a", "initializeCommand": "rm -rf /"}`, "initializeCommand", `null`, "initializeCommand"},
		{in, `{"image": "a", "appPort": 80}`, "appPort", `null`, "appPort"},
		{in, `{"image": "a", "forwardPorts": [80]}`, "forwardPorts", `[80]`, ""},
		{in, `{"image": "a", "name": "${localEnv:TERM_THEME} ${localEnv:TOKEN} ${localEnv:T:default}"}`, "name",
			`"dark  default"`, "name"},
		{in, `{"image": "a", "customizations": {"x": [{"y": "${env:TOKEN} ${workspaceFolder} ${containerEnv:A}"}, 1]}}`,
			"customizations", `{"x": [{"y": " ${workspaceFolder} ${containerEnv:A}"}, 1]}`, "customizations"},
		{in, `{"image": "a", "unknown": 1}`, "unknown", `null`, "unknown"},
		{in, `{"build": {"dockerfile": "Dockerfile"}}`, "build", `{"dockerfile": "Dockerfile", "target": "", "args": {},
			"context": "/home/ada/shop/.devcontainer"}`, ""},
		{".devcontainer.json", `{"build": {"dockerfile": "Dockerfile", "context": ".", "args": {"A": "${env:B}"},
			"options": ["--network=host"]}}`, "build",
			`{"dockerfile": "Dockerfile", "context": "/home/ada/shop", "target": "", "args": {}}`, "build.args.A build.options"},
		{in, `{"image": "a", "features": {"./f": {"v": "${env:TOKEN}x"}, "r.example/f:1": true}}`, "features",
			`{"../../../ada/shop/.devcontainer/f": {"v": "x"}, "r.example/f:1": {}}`, "features../f"},
		{in, `{"image": "a", "mounts": ["type=bind,source=/,target=/h", "type=volume,source=data,target=/d",
			"type=volume,target=/d", "type=volume,src=x-${devcontainerId},dst=/e",
			"type=volume,source=${devcontainerId},target=/d,volume-opt=device=/", {"type": "tmpfs", "target": "/t"}]}`, "mounts",
			`["type=volume,target=/d", "type=volume,source=x-` + Identity(users.Local, in) + `,target=/e",
			"type=tmpfs,target=/t", "type=bind,source=/home/ada/shop/.git,target=/workspaces/shop/.git",
			"type=bind,source=/home/ada/shop/.git/hooks,target=/workspaces/shop/.git/hooks,readonly"]`,
			`mounts "type=bind,source=/,target=/h" mounts "type=volume,source=data,target=/d" ` +
				`mounts "type=volume,source=${devcontainerId},target=/d,volume-opt=device=/"`},
		{in, `{"image": "a", "workspaceMount": "type=bind,source=/home,target=/w"}`, "workspaceMount",
			`"type=bind,source=/home/ada/shop,target=/workspaces/shop"`, "workspaceMount"},
		{in, `{"image": "a", "workspaceMount": "type=bind,source=${localWorkspaceFolder}/../..,target=/w"}`, "workspaceMount",
			`"type=bind,source=/home/ada/shop,target=/workspaces/shop"`, "workspaceMount"},
		{in, `{"image": "a", "workspaceMount":
			"type=bind,source=${localWorkspaceFolder}/.devcontainer,target=/w,consistency=cached"}`, "workspaceMount",
			`"type=bind,source=/home/ada/shop/.devcontainer,target=/w"`, ""},
		{in, `{"image": "a", "hostRequirements": {"cpus": 1, "gpu": true}}`, "hostRequirements", `null`,
			"hostRequirements"},
		{in, `{"image": "a", "containerEnv": {"A": "b", "SSL_CERT_FILE": "/own"}}`, "containerEnv",
			`{"A": "b", "SSL_CERT_FILE": "/etc/cove/ca.crt"}`, "containerEnv.SSL_CERT_FILE"},
		{in, `{"image": "a", "remoteEnv": {"SSL_CERT_FILE": "/own", "B": null}}`, "remoteEnv", `{"B": null}`,
			"remoteEnv.SSL_CERT_FILE"},
		{in, `{"image": "a"}`, "postCreateCommand", `"wait"`, ""},
		{in, `{"image": "a", "postCreateCommand": "make"}`, "postCreateCommand", `"(wait) || exit\nmake"`, ""},
		{in, `{"image": "a", "postCreateCommand": ["make", "$A"]}`, "postCreateCommand",
			`["/bin/sh", "-c", "(wait) && exec \"$@\"", "sh", "make", "$A"]`, ""},
		{in, `{"image": "a", "postCreateCommand": {"a": "make", "b": ["b"]}}`, "postCreateCommand",
			`{"a": "(wait) || exit\nmake", "b": ["/bin/sh", "-c", "(wait) && exec \"$@\"", "sh", "b"]}`, ""},
		{in, `{"image": "a", "onCreateCommand": "x", "postCreateCommand": "make"}`, "onCreateCommand",
			`"(wait) || exit\nx"`, ""},
		{in, `{"image": "a", "onCreateCommand": "x", "postCreateCommand": "make"}`, "postCreateCommand", `"make"`, ""},
		{in, `{"image": "a", "postStartCommand": "make"}`, "postStartCommand", `"(wait) || exit\nmake"`, ""},
	} {
		got, said, made := written(t, c.path, c.text)
		var want any
		if err := json.Unmarshal([]byte(c.want), &want); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got[c.member], want) {
			t.Errorf("%s: %v, want %s\n%s", c.text, got[c.member], c.want, made)
		}
		if strings.Join(said, " ") != c.said {
			t.Errorf("%s: it says %q, want %q", c.text, said, c.said)
		}
	}
}

// TestWriteRunArgs: options that widen nothing stay, limits are the lower ones, and the confinement's are always there.
func TestWriteRunArgs(t *testing.T) {
	own := []string{"--label=cove.devcontainer=secret", "--network=none", "--security-opt=no-new-privileges",
		"--security-opt=seccomp=/home/u/.cove/x/seccomp.json", "--cap-drop=ALL", "--cap-add=CHOWN"}
	for _, c := range []struct {
		args, want []string // want is beside own and the limits
		limits     string
		said       string
	}{
		{nil, nil, "4G 2 1024", ""},
		{[]string{"--network=none", "--cap-drop", "MKNOD", "--security-opt", "no-new-privileges"}, nil, "4G 2 1024", ""},
		{[]string{"--memory=1g", "--cpus", "1", "--pids-limit=7"}, nil, "1G 1 7", ""},
		{[]string{"-m", "64g", "--cpus=64"}, nil, "4G 2 1024", ""},
		{[]string{"--init", "-e", "A=b", "--hostname", "x"}, []string{"--init", "--env=A=b", "--hostname=x"},
			"4G 2 1024", ""},
		{[]string{"--label", "a=b", "--name=x", "--rm=image"}, nil, "4G 2 1024",
			"runArgs --label a=b|runArgs --name x|runArgs --rm image"},
		{[]string{"-e", "TOKEN"}, nil, "4G 2 1024", "runArgs -e TOKEN"},
		{[]string{"--network", "host", "-v", "/:/h", "--privileged", "--device=/dev/kvm"}, nil, "4G 2 1024",
			"runArgs --network host|runArgs -v /:/h|runArgs --privileged|runArgs --device /dev/kvm"},
		{[]string{"--security-opt", "seccomp=unconfined", "--cap-add=ALL"}, nil, "4G 2 1024",
			"runArgs --security-opt seccomp=unconfined|runArgs --cap-add ALL"},
		{[]string{"-e", "A=${localEnv:TOKEN}"}, []string{"--env=A="}, "4G 2 1024",
			"runArgs -e A=${localEnv:TOKEN}"},
	} {
		text, _ := json.Marshal(map[string]any{"image": "a", "runArgs": append([]string{}, c.args...)})
		got, said, _ := written(t, ".devcontainer.json", string(text))
		l := strings.Fields(c.limits)
		want := slices.Concat(own, c.want, []string{"--memory=" + l[0], "--cpus=" + l[1], "--pids-limit=" + l[2]})
		var args []string
		for _, a := range got["runArgs"].([]any) {
			args = append(args, a.(string))
		}
		if !slices.Equal(args, want) || strings.Join(said, "|") != c.said {
			t.Errorf("%q: %q, %q; want %q, %q", c.args, args, said, want, c.said)
		}
	}
}

// TestWriteRefuses: a container that could not be confined is not written.
func TestWriteRefuses(t *testing.T) {
	for text, want := range map[string]cove.Code{
		`{"dockerComposeFile": "compose.yaml", "service": "app"}`:                            cove.Unsupported,
		`{"image": "a", "customizations": {"cove": {"isolation": {"enabled": false}}}}`:      cove.Unsupported,
		`{"image": "a", "features": {"./bind": {}}}`:                                         cove.Unsupported,
		`{"image": "a", "containerEnv": {"A": "${localEnv:B:${localEnv:TOKEN}}"}}`:           cove.InvalidArgument,
		`{"image": "a", "containerEnv": {"A": "${A}"}}`:                                      cove.InvalidArgument,
		`{"image": "a", "postCreateCommand": "echo ${A:-${localEnv:TOKEN}}"}`:                cove.InvalidArgument,
		`{"image": "a", "workspaceFolder": "/w,x"}`:                                          cove.InvalidArgument,
		`{"image": "a", "workspaceMount": "type=bind,source=/home/ada/shop/data,target=/w"}`: cove.InvalidArgument,
		`{"build": {"dockerfile": "Dockerfile", "context": "../data"}}`:                      cove.InvalidArgument,
		`{"build": {"dockerfile": "None"}}`:                                                  cove.InvalidArgument,
		`{"image": "a", "remoteUser": "--privileged"}`:                                       cove.InvalidArgument,
		`{"build": {"dockerfile": "Dockerfile", "context": "..", "target": "--network=h"}}`:  cove.InvalidArgument,
	} {
		if _, err := write(t, ".devcontainer/devcontainer.json", text); cove.ErrorCode(err) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestWriteVariables: of ${…}, those of the container and of shells are left, and none that others replace.
func TestWriteVariables(t *testing.T) {
	for text, left := range map[string]string{
		"$A ${A} ${A:-x} ${A%.*} ${#A[@]} ${A:1:2} ${1} ${@} ${!A}": "", "${containerEnv:A} ${containerEnv:A:b}": "",
		"${localEnv:A}": "${localEnv:A}", "${env:A:b}": "${env:A:b}", "${env}": "${env}", "${localEnv:-A}": "${localEnv:-A}",
		"${config:a}": "${config:a}", "${A:-${env:B}}": "${A:-${env:B}", "${A": "${A}", "${}": "${}",
		"${containerEnv:A:${env:B}}": "${containerEnv:A:${env:B}", "a ${A} ${command:x}": "${command:x}",
	} {
		if got := leftVariable(text, ofContainer, ofShell); got != left {
			t.Errorf("%s: %q, want %q", text, got, left)
		}
	}
}

// TestWriteFiles: the file names where it is from, in one line, and has the Dockerfile and what it ignores beside it.
func TestWriteFiles(t *testing.T) {
	_, _, made := written(t, ".devcontainer/a\nb/devcontainer.json", `{"build": {"dockerfile": "../../Dockerfile",
		"context": "../.."}}`)
	first, _, _ := strings.Cut(string(made["devcontainer.json"]), "\n")
	if !strings.Contains(first, `from ".devcontainer/a\nb/devcontainer.json"`) || string(made["Dockerfile"]) != "FROM a" ||
		string(made["Dockerfile.dockerignore"]) != "x" {
		t.Errorf("%s", made)
	}
}
