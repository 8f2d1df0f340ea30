package devcontainer

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tailscale/hujson"

	"github.com/cove-sandbox/cove"
)

var confined = Confinement{Capabilities: []string{"CHOWN"}, Seccomp: ".devcontainer/cove/seccomp.json",
	Env: map[string]string{"SSL_CERT_FILE": "/etc/cove/ca.crt"}, Wait: "wait"}

// rewritten returns the members of a written file, and what was said, as KEY.
func rewritten(t *testing.T, path, text string) (all map[string]any, said []string, source string) {
	t.Helper()
	f := File{path, []byte(text)}
	e, err := Evaluate(f, users)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	w, err := Write(f, e, users, confined)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	standard, err := hujson.Standardize(bytes.Clone(w.Data))
	if err != nil {
		t.Fatalf("%v: %s", err, w.Data)
	}
	if err := json.Unmarshal(standard, &all); err != nil {
		t.Fatalf("%v: %s", err, w.Data)
	}
	for _, l := range w.Changed {
		said = append(said, l.Key)
	}
	return all, said, string(w.Data)
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
		{in, `{"image": "a", "x": "${localEnv:TERM_THEME} ${localEnv:TOKEN} ${localEnv:T:default} ${localEnvelope:x}"}`, "x",
			`"${localEnv:TERM_THEME}  default ${localEnvelope:x}"`, "x x"},
		{in, `{"image": "a", "x": [{"y": "${env:TOKEN}"}]}`, "x", `[{"y": ""}]`, "x"},
		{in, `{"build": {"dockerfile": "Dockerfile"}}`, "build", `{"dockerfile": "../Dockerfile", "context": ".."}`, ""},
		{in, `{"build": {"dockerfile": "d/Dockerfile", "context": "..", "options": ["--network=host"]}}`, "build",
			`{"dockerfile": "../d/Dockerfile", "context": "../.."}`, "build.options"},
		{".devcontainer.json", `{"build": {"dockerfile": "Dockerfile", "context": "."}}`, "build",
			`{"dockerfile": "../../Dockerfile", "context": "../.."}`, ""},
		{in, `{"dockerFile": "Dockerfile"}`, "dockerFile", `"../Dockerfile"`, ""},
		{".devcontainer/go/devcontainer.json",
			`{"image": "a", "features": {"./f": {"v": "1"}, "../g": {}, "r.example/f:1": {}}}`, "features",
			`{"../go/f": {"v": "1"}, "../g": {}, "r.example/f:1": {}}`, ""},
		{in, `{"image": "a", "overrideFeatureInstallOrder": ["./f", "r.example/f"]}`, "overrideFeatureInstallOrder",
			`["../f", "r.example/f"]`, ""},
		{in, `{"image": "a", "mounts": ["type=bind,source=/,target=/h", "type=volume,source=data,target=/d",
			"type=volume,target=/d", "type=volume,src=x-${devcontainerId},dst=/d",
			"type=volume,source=${devcontainerId},target=/d,volume-opt=device=/", {"type": "tmpfs", "target": "/t"}]}`, "mounts",
			`["type=volume,target=/d", "type=volume,src=x-${devcontainerId},dst=/d", {"type": "tmpfs", "target": "/t"}]`,
			`mounts "type=bind,source=/,target=/h" mounts "type=volume,source=data,target=/d" ` +
				`mounts "type=volume,source=${devcontainerId},target=/d,volume-opt=device=/"`},
		{in, `{"image": "a", "workspaceMount": "type=bind,source=/home,target=/w"}`, "workspaceMount", `null`,
			"workspaceMount"},
		{in, `{"image": "a", "workspaceMount": "type=bind,source=${localWorkspaceFolder}/../..,target=/w"}`, "workspaceMount",
			`null`, "workspaceMount"},
		{in, `{"image": "a", "workspaceMount": "type=bind,source=${localWorkspaceFolder}/a,target=/w,consistency=cached"}`,
			"workspaceMount", `"type=bind,source=${localWorkspaceFolder}/a,target=/w,consistency=cached"`, ""},
		{in, `{"image": "a", "hostRequirements": {"cpus": 1, "gpu": true}}`, "hostRequirements", `{"cpus": 1}`,
			"hostRequirements.gpu"},
		{in, `{"image": "a", "containerEnv": {"A": "b", "SSL_CERT_FILE": "/own"}}`, "containerEnv",
			`{"A": "b", "SSL_CERT_FILE": "/etc/cove/ca.crt"}`, "containerEnv.SSL_CERT_FILE"},
		{in, `{"image": "a", "remoteEnv": {"SSL_CERT_FILE": "/own"}}`, "remoteEnv", `{}`, "remoteEnv.SSL_CERT_FILE"},
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
		got, said, source := rewritten(t, c.path, c.text)
		var want any
		if err := json.Unmarshal([]byte(c.want), &want); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got[c.member], want) {
			t.Errorf("%s: %v, want %s\n%s", c.text, got[c.member], c.want, source)
		}
		if strings.Join(said, " ") != c.said {
			t.Errorf("%s: it says %q, want %q", c.text, said, c.said)
		}
	}
}

// TestWriteRunArgs: options that widen nothing stay, limits are the lower ones, and the confinement's are always there.
func TestWriteRunArgs(t *testing.T) {
	own := []string{"--network=none", "--security-opt=no-new-privileges",
		"--security-opt=seccomp=${localWorkspaceFolder}/.devcontainer/cove/seccomp.json", "--cap-drop=ALL", "--cap-add=CHOWN"}
	for _, c := range []struct {
		args, want []string // want is beside own and the limits
		limits     string
		said       string
	}{
		{nil, nil, "4G 2 1024", ""},
		{[]string{"--network=none", "--cap-drop", "MKNOD", "--security-opt", "no-new-privileges"}, nil, "4G 2 1024", ""},
		{[]string{"--memory=1g", "--cpus", "1", "--pids-limit=7"}, nil, "1G 1 7", ""},
		{[]string{"-m", "64g", "--cpus=64"}, nil, "4G 2 1024", ""},
		{[]string{"--init", "-e", "A=b", "--hostname", "x"}, []string{"--init", "-e", "A=b", "--hostname", "x"},
			"4G 2 1024", ""},
		{[]string{"-e", "TOKEN"}, nil, "4G 2 1024", "runArgs -e TOKEN"},
		{[]string{"--network", "host", "-v", "/:/h", "--privileged", "--device=/dev/kvm"}, nil, "4G 2 1024",
			"runArgs --network host|runArgs -v /:/h|runArgs --privileged|runArgs --device /dev/kvm"},
		{[]string{"--security-opt", "seccomp=unconfined", "--cap-add=ALL"}, nil, "4G 2 1024",
			"runArgs --security-opt seccomp=unconfined|runArgs --cap-add ALL"},
		{[]string{"-e", "A=${localEnv:TOKEN}"}, []string{"-e", "A="}, "4G 2 1024", "runArgs"},
	} {
		text, _ := json.Marshal(map[string]any{"image": "a", "runArgs": append([]string{}, c.args...)})
		got, said, _ := rewritten(t, ".devcontainer.json", string(text))
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
	for _, text := range []string{`{"dockerComposeFile": "compose.yaml", "service": "app"}`,
		`{"image": "a", "customizations": {"cove": {"isolation": {"enabled": false}}}}`} {
		f := File{".devcontainer.json", []byte(text)}
		e, err := Evaluate(f, users)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Write(f, e, users, confined); cove.ErrorCode(err) != cove.Unsupported {
			t.Errorf("%s: %v", text, err)
		}
	}
	f := File{".devcontainer.json", []byte(`{"image": "a", "features": {"./f": {}}}`)}
	e, err := Evaluate(f, users)
	if err != nil {
		t.Fatal(err)
	}
	e.LeftOut = append(e.LeftOut, LeftOut{Key: "features../f.privileged", Line: 1})
	if _, err := Write(f, e, users, confined); cove.ErrorCode(err) != cove.Unsupported {
		t.Errorf("a privileged feature: %v", err)
	}
}

// TestWriteComments: comments stay, and the file names where it is from.
func TestWriteComments(t *testing.T) {
	_, _, source := rewritten(t, ".devcontainer.json", "{\n// why\n\"image\": \"a\", // which\n}")
	for _, want := range []string{"// Written by \"cove devcontainer write\" from .devcontainer.json",
		"// why", "// which"} {
		if !strings.Contains(source, want) {
			t.Errorf("no %q in %s", want, source)
		}
	}
}

// TestWriteWithoutHost: no variable of the host is left in what is rewritten, nor does a mark of the encoding matter.
func TestWriteWithoutHost(t *testing.T) {
	_, _, source := rewritten(t, ".devcontainer/devcontainer.json", "\xef\xbb\xbf"+`{"image": "a",
		"features": {"./f": {"token": "${localEnv:TOKEN}"}}, "postCreateCommand": {"a": ["x", "${localEnv:TOKEN}"]},
		"mounts": ["type=volume,source=${localEnv:TOKEN}${devcontainerId},target=/d"],
		"runArgs": ["-e", "A=${localEnv:TOKEN}"], "containerEnv": {"A": "${env:TOKEN}"}}`)
	if strings.Contains(source, "TOKEN") {
		t.Error(source)
	}
}
