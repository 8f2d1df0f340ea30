package devcontainer

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cove-sandbox/cove"
)

var users = Context{Local: "/home/ada/shop", Limits: cove.Limits{Memory: 4 << 30, CPUs: 2, PIDs: 1024, Disk: 4 << 30},
	LocalEnv: map[string]string{"TERM_THEME": "dark"}, Allowed: []string{"*.example.com"},
	Machine: cove.Limits{CPUs: 4, Memory: 8 << 30}}

func evaluated(t *testing.T, text string) *Effective {
	t.Helper()
	e, err := Evaluate(File{".devcontainer.json", []byte(text)}, users)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return e
}

func TestFind(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	const inFolder, named = ".devcontainer/devcontainer.json", ".devcontainer/go/devcontainer.json"
	for _, c := range []struct {
		name, ask string
		files     fstest.MapFS
		path      string
		code      cove.Code
	}{
		{"none", "", fstest.MapFS{}, "", cove.NotFound},
		{"folder", "", fstest.MapFS{inFolder: file("{}"), ".devcontainer.json": file("{}"), named: file("{}")}, inFolder, ""},
		{"top", "", fstest.MapFS{".devcontainer.json": file("{}"), named: file("{}")}, ".devcontainer.json", ""},
		{"one named", "", fstest.MapFS{named: file("{}")}, named, ""},
		{"several", "", fstest.MapFS{named: file("{}"), ".devcontainer/c/devcontainer.json": file("{}")}, "", cove.Conflict},
		{"asked for", "go", fstest.MapFS{named: file("{}"), inFolder: file("{}")}, named, ""},
		{"not there", "c", fstest.MapFS{named: file("{}")}, "", cove.NotFound},
		{"large", "", fstest.MapFS{inFolder: file(strings.Repeat(" ", maxFile+1))}, "", cove.TooLarge},
		{"folder is a file", "", fstest.MapFS{".devcontainer": file("")}, "", cove.NotFound},
	} {
		f, err := Find(c.files, c.ask)
		if f.Path != c.path || cove.ErrorCode(err) != c.code {
			t.Errorf("%s: %q, %v", c.name, f.Path, err)
		}
	}
}

// TestLinks finds nothing outside of a checkout, and no file that is none.
func TestLinks(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	secret := filepath.Join(outside, fileName)
	if err := os.WriteFile(secret, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{secret, outside} {
		link := filepath.Join(dir, folder)
		if target == secret {
			link += ".json"
		}
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		f, err := Find(root.FS(), "")
		if cove.ErrorCode(err) != cove.Forbidden {
			t.Errorf("%s: %q, %v", link, f.Path, err)
		}
		root.Close()
		if err := os.Remove(link); err != nil {
			t.Fatal(err)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"{\n \"image\" \"x\"}":                          "line 2, column 10",
		"[]":                                            "no object",
		"{\n\n\"image\": 3}":                            "line 3: \"image\": a number does not fit here",
		"{\"name\":\"a\",\n\"name\":\"b\"}":             "line 2: \"name\": it is there twice",
		"{\"runArgs\":[\"--memory\",\"much\"]}":         `--memory "much" is no limit`,
		"{\"x\":" + strings.Repeat("[", 200) + "\n":     "nested deeper",
		"{\"postCreateCommand\":{\"a\":[1]}}":           "does not fit here",
		"{\"hostRequirements\":{\"cpus\":\"several\"}}": `cpus: "several" does not fit here`,
		"{\"image\": \"\"}":                             "it is empty",
	} {
		_, err := Evaluate(File{".devcontainer.json", []byte(text)}, users)
		if err == nil || !strings.Contains(err.Error(), want) || cove.ErrorCode(err) != cove.InvalidArgument {
			t.Errorf("%.60s: %v, want %s", text, err, want)
		}
	}
}

// TestComments are no brackets, and neither are strings.
func TestComments(t *testing.T) {
	many := strings.Repeat("[{", maxDepth)
	e := evaluated(t, "{ // "+many+"\n/* \" "+many+" */ \"name\": \"\\\""+many+"\", \"image\": \"debian\", }")
	if e.Image != "debian" {
		t.Errorf("%+v", e)
	}
}

func TestVariables(t *testing.T) {
	for text, want := range map[string]string{
		"${localWorkspaceFolderBasename}":                "shop",
		"${localWorkspaceFolder}":                        "/home/ada/shop",
		"${containerWorkspaceFolder}/x":                  "/workspace/x",
		"${containerWorkspaceFolderBasename}":            "workspace",
		"${localEnv:TERM_THEME}-${localEnv:NONE:a:b}":    "dark-a:b",
		"${localEnv:NONE:}":                              "",
		"${unknown} $HOME ${":                            "${unknown} $HOME ${",
		"${localEnv:TERM_THEME}${localEnv:TERM_THEME:x}": "darkdark",
	} {
		e := evaluated(t, `{"containerEnv":{"X":"`+text+`"}}`)
		if got, ok := e.Env["X"]; got != want || !ok {
			t.Errorf("%s: %q", text, got)
		}
	}
	e := evaluated(t, `{"remoteEnv":{"B":"${containerEnv:A}/bin","C":"${containerEnv:PATH}"},"containerEnv":{"A":"/opt"}}`)
	if e.Env["B"] != "/opt/bin" || len(e.LeftOut) != 1 || !strings.Contains(e.LeftOut[0].Why, "PATH") {
		t.Errorf("%+v", e)
	}
	t.Setenv("HOST_SECRET", "hunter2")
	e = evaluated(t, `{"containerEnv":{"S":"${localEnv:HOST_SECRET}","T":"${devcontainerId}"}}`)
	if _, ok := e.Env["S"]; ok || len(e.Env["T"]) != 52 || e.LeftOut[0].Key != "containerEnv.S" {
		t.Errorf("%+v", e)
	}
}

// TestLeftOut has every property that widens, with what becomes of it.
func TestLeftOut(t *testing.T) {
	for text, key := range map[string]string{
		`"privileged": true`:                                                   "privileged",
		`"capAdd": ["SYS_PTRACE"]`:                                             "capAdd",
		`"securityOpt": ["seccomp=unconfined"]`:                                "securityOpt",
		`"mounts": ["source=/,target=/host,type=bind"]`:                        "mounts /host",
		`"initializeCommand": "id"`:                                            "initializeCommand",
		`"forwardPorts": ["db:5432"]`:                                          "forwardPorts db:5432",
		`"runArgs": ["--device=/dev/kvm"]`:                                     "runArgs --device /dev/kvm",
		`"runArgs": ["--memory", "1g", "-v", "/:/host"]`:                       "runArgs -v /:/host",
		`"runArgs": ["--privileged", "--init"]`:                                "runArgs --privileged",
		`"runArgs": ["--network=host"]`:                                        "runArgs --network host",
		`"runArgs": ["--security-opt=label:disable"]`:                          "runArgs --security-opt label:disable",
		`"containerEnv": {"LD_PRELOAD": "/x.so"}`:                              "containerEnv.LD_PRELOAD",
		`"containerEnv": {"NODE_OPTIONS": "--require /x"}`:                     "containerEnv.NODE_OPTIONS",
		`"remoteUser": "root"`:                                                 "remoteUser root",
		`"remoteUser": "node"`:                                                 "remoteUser node",
		`"image": "a", "containerUser": "0:0"`:                                 "containerUser 0:0",
		`"workspaceFolder": "/"`:                                               "workspaceFolder",
		`"workspaceMount": "source=/,target=/w,type=bind"`:                     "workspaceMount",
		`"hostRequirements": {"cpus": 64}`:                                     "hostRequirements.cpus 64",
		`"hostRequirements": {"gpu": true}`:                                    "hostRequirements.gpu true",
		`"somethingNew": 1`:                                                    "somethingNew",
		`"customizations":{"cove":{"isolation":{"caps":{"add":["NET_RAW"]}}}}`: "customizations.cove.isolation.caps.add",
	} {
		e := evaluated(t, "{"+text+"}")
		if len(e.LeftOut) != 1 || e.LeftOut[0].Key != key || e.LeftOut[0].Why == "" {
			t.Errorf("%s: %+v", text, e.LeftOut)
		}
	}
	e := evaluated(t, `{"privileged": false, "capAdd": [], "init": true,
		"runArgs": ["--cap-drop=ALL", "--network", "none"]}`)
	if len(e.LeftOut) != 0 {
		t.Errorf("%+v", e.LeftOut)
	}
}

func TestUnsupported(t *testing.T) {
	for _, text := range []string{`"build": {"context": "."}`, `"build": {"target": "x"}`,
		`"features": {"ghcr.io/x/y:1": {}}`, `"dockerComposeFile": "compose.yml"`, `"image": "dir:/"`, `"image": "tar:/x"`,
		`"image": "host"`, `"image": "/etc"`, `"customizations":{"devagent":{"isolation":{"enabled":false}}}`} {
		e := evaluated(t, "{"+text+"}")
		if cove.ErrorCode(e.Err()) != cove.Unsupported || e.Image != "" {
			t.Errorf("%s: %v", text, e.Err())
		}
	}
	e := evaluated(t, `{"image": "debian:12", "features": {}}`)
	if e.Err() != nil || e.Image != "debian:12" {
		t.Errorf("%v, %+v", e.Err(), e)
	}
}

// TestBuild takes a Dockerfile and its context within the repository, and what of Docker's options there is.
func TestBuild(t *testing.T) {
	const file = ".devcontainer/go/devcontainer.json"
	of := func(text string) (*Effective, error) { return Evaluate(File{file, []byte(text)}, users) }
	for text, want := range map[string]Build{
		`{"build": {"dockerfile": "Dockerfile"}}`: {Dockerfile: ".devcontainer/go/Dockerfile", Context: ".devcontainer/go"},
		`{"build": {"dockerfile": "../D", "context": "../..", "target": "dev",
			"args": {"A": "${localEnv:TERM_THEME}", "B": "${localWorkspaceFolderBasename}=1", "C": "${localEnv:SECRET}"},
			"cacheFrom": "x", "options": ["--network=host"], "other": 1}}`: {Dockerfile: ".devcontainer/D", Context: ".",
			Target: "dev", Args: map[string]string{"A": "dark", "B": "shop=1"}},
		`{"build": {"dockerfile": "${localWorkspaceFolder}/a/D", "context": "${localWorkspaceFolder}"}}`: {
			Dockerfile: "a/D", Context: "."},
		`{"dockerFile": "D", "context": ".."}`: {Dockerfile: ".devcontainer/go/D", Context: ".devcontainer"},
	} {
		e, err := of(text)
		if err == nil {
			err = e.Err()
		}
		if err != nil || !reflect.DeepEqual(*e.Build, want) {
			t.Errorf("%s: %+v, %v", text, e, err)
		}
	}
	e, err := of(`{"image": "debian", "build": {"dockerfile": "D", "cacheFrom": "x", "options": ["--privileged"],
		"args": {"C": "${localEnv:SECRET}"}, "other": 1}}`)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, l := range e.LeftOut {
		left = append(left, l.Key)
	}
	want := []string{"build.args.C", "build.cacheFrom", "build.options", "build.other", "image debian"}
	if e.Image != "" || !slices.Equal(left, want) {
		t.Errorf("%q, left out %q", e.Image, left)
	}
	for _, path := range []string{"../../../D", "/etc/passwd", "/home/ada/shop/../D", `..\\D`, "", "${localEnv:X}/D"} {
		for _, key := range []string{"dockerfile", "context"} {
			if _, err := of(`{"build": {"` + key + `": "` + path + `"}}`); cove.ErrorCode(err) != cove.InvalidArgument {
				t.Errorf("%s %q: %v", key, path, err)
			}
		}
	}
}

// TestOrigins: a limit of Cove's own is not called the user's.
func TestOrigins(t *testing.T) {
	c := users
	c.Origins = map[string]string{"memory": FromDefault, "image": FromDefault}
	e, err := Evaluate(File{"f", []byte(`{"runArgs": ["--cpus=1", "--memory=9g"]}`)}, c)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, v := range e.Values {
		got[v.Key] = v.From
	}
	for key, want := range map[string]string{"image": FromDefault, "pids": FromUser, "cpus": "f",
		"memory": FromDefault + ", which is lower than the file's"} {
		if got[key] != want {
			t.Errorf("%s is of %q, want %q", key, got[key], want)
		}
	}
}

// TestNarrows takes limits that are lower than the user's, and no others.
func TestNarrows(t *testing.T) {
	iso := func(tool, text string) string {
		return `"customizations":{"` + tool + `":{"isolation":{"resources":` + text + `}}}`
	}
	for text, want := range map[string]cove.Limits{
		`"runArgs": ["--memory=1g", "--cpus", "0.5", "--pids-limit=99"]`: {Memory: 1 << 30, CPUs: 0.5, PIDs: 99},
		`"runArgs": ["-m", "512mb"]`:                                     {Memory: 512 << 20},
		`"runArgs": ["--memory=64g", "--cpus=99"]`:                       {},
		iso("cove", `{"memory":"2GiB","cpus":1,"pidsLimit":10}`):         {Memory: 2 << 30, CPUs: 1, PIDs: 10},
		iso("devagent", `{"memory":"8g","cpus":"1.5"}`):                  {CPUs: 1.5},
		`"runArgs": ["--memory=1g"],` + iso("cove", `{"memory":"2g"}`):   {Memory: 1 << 30},
	} {
		if e := evaluated(t, "{"+text+"}"); e.Limits != want {
			t.Errorf("%s: %+v", text, e.Limits)
		}
	}
}

func TestCommands(t *testing.T) {
	e := evaluated(t, `{"postStartCommand": ["make", "${localWorkspaceFolderBasename}"],
		"postCreateCommand": "npm ci && id",
		"onCreateCommand": {"b": "x", "a": ["y", "z"], "c": ""}, "postAttachCommand": null}`)
	want := []Command{
		{"onCreateCommand", Once, []Step{{"a", []string{"y", "z"}}, {"b", []string{"/bin/sh", "-c", "x"}}},
			".devcontainer.json:3"},
		{"postCreateCommand", Once, []Step{{"", []string{"/bin/sh", "-c", "npm ci && id"}}}, ".devcontainer.json:2"},
		{"postStartCommand", Start, []Step{{"", []string{"make", "shop"}}}, ".devcontainer.json:1"},
	}
	if !reflect.DeepEqual(e.Commands, want) {
		t.Errorf("%+v", e.Commands)
	}
}

func TestWorkspaceFolder(t *testing.T) {
	for text, want := range map[string]string{
		`"workspaceFolder": "/workspaces/shop/web"`:                                       "/workspace/web",
		`"workspaceFolder": "/workspaces/${localWorkspaceFolderBasename}"`:                "/workspace",
		`"workspaceFolder": "/src/a", "workspaceMount": "source=x,target=/src,type=bind"`: "/workspace/a",
		`"workspaceFolder": "/workspace/../etc"`:                                          "/workspace",
		`"name": "x"`:                                                                     "/workspace",
	} {
		if e := evaluated(t, "{"+text+"}"); e.WorkDir != want {
			t.Errorf("%s: %s", text, e.WorkDir)
		}
	}
}

func TestNetworkIsAskedFor(t *testing.T) {
	e := evaluated(t, `{"customizations":{"cove":{"isolation":{"network":{"allowlist":["api.example.com","evil.test"],
		"allowlistExtend":["badexample.com","evil.test"],"passthrough":["pinned.test"]}}}}}`)
	want := Network{Allowed: []string{"api.example.com"}, Asked: []string{"evil.test", "badexample.com"},
		PassThrough: []string{"pinned.test"}}
	if !reflect.DeepEqual(e.Network, want) {
		t.Errorf("%+v", e.Network)
	}
}

func TestIsolationOver(t *testing.T) {
	no := false
	defaults := Isolation{Caps: Caps{Drop: []string{"A"}}, Resources: Resources{"4g", "2", 512},
		Network: Reach{Allowlist: []string{"a"}, Passthrough: []string{"p"}}}
	for _, c := range []struct {
		name string
		own  *Isolation
		want Isolation
	}{
		{"none", nil, defaults},
		{"not enabled", &Isolation{Enabled: &no}, Isolation{Enabled: &no}},
		{"empty", &Isolation{}, defaults},
		{"replaced", &Isolation{Resources: Resources{Memory: "1g"}, Network: Reach{Allowlist: []string{"b"},
			AllowlistExtend: []string{"c", "b"}, Pinned: []string{"q"}}},
			Isolation{Caps: defaults.Caps, Resources: Resources{"1g", "2", 512},
				Network: Reach{Allowlist: []string{"b", "c"}, Passthrough: []string{"q"}}}},
		{"extended", &Isolation{Network: Reach{AllowlistExtend: []string{"c"}}},
			Isolation{Caps: defaults.Caps, Resources: defaults.Resources,
				Network: Reach{Allowlist: []string{"a", "c"}, Passthrough: []string{"p"}}}},
	} {
		if got := c.own.Over(defaults); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

// TestDigest changes with the file, and with what it refers to.
func TestDigest(t *testing.T) {
	files := fstest.MapFS{".devcontainer/devcontainer.json": {Data: []byte(`{"build":{"dockerfile":"Dockerfile"}}`)},
		".devcontainer/Dockerfile": {Data: []byte("FROM a")}}
	digest := func() string {
		f, err := Find(files, "")
		if err != nil {
			t.Fatal(err)
		}
		e, err := Evaluate(f, users)
		if err != nil {
			t.Fatal(err)
		}
		referred, err := Referred(files, e.Refers)
		if err != nil {
			t.Fatal(err)
		}
		return Digest(f, referred)
	}
	seen := map[string]string{digest(): "as it was"}
	for name, data := range map[string]string{".devcontainer/Dockerfile": "FROM b", ".devcontainer/.dockerignore": "a",
		".devcontainer/Dockerfile.dockerignore": "b",
		".devcontainer/devcontainer.json":       `{"build":{"dockerfile":"Dockerfile"}} `} {
		files[name] = &fstest.MapFile{Data: []byte(data)}
		d := digest()
		if seen[d] != "" {
			t.Errorf("with another %s it is %s", name, seen[d])
		}
		seen[d] = name
	}
}

// FuzzEvaluate holds that no file widens anything: no limit is above the user's, no variable is one that callers may
// not set, no image is of the host.
func FuzzEvaluate(f *testing.F) {
	f.Add([]byte(`{"image":"a","runArgs":["--memory=1g"],"containerEnv":{"A":"${localEnv:B}"}} // x`))
	f.Add([]byte(`{"customizations":{"cove":{"isolation":{"resources":{"memory":"1e9t"}}}}}`))
	f.Add([]byte(`{"workspaceFolder":"/workspace/.."}`))
	f.Add([]byte(`{"build":{"dockerfile":"a/../../D","context":"${localWorkspaceFolder}/.."}}`))
	f.Add([]byte(`{"postCreateCommand":{"a":["b"]},"hostRequirements":{"memory":"4gb"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := Evaluate(File{".devcontainer.json", data}, users)
		if err != nil {
			return
		}
		l := e.Limits
		if l.Memory < 0 || l.Memory > users.Limits.Memory || l.CPUs < 0 || l.CPUs > users.Limits.CPUs ||
			l.PIDs < 0 || l.PIDs > users.Limits.PIDs || l.Disk != 0 {
			t.Errorf("limits: %+v", l)
		}
		if e.WorkDir != cove.Workspace && !strings.HasPrefix(e.WorkDir, cove.Workspace+"/") {
			t.Errorf("work dir %q", e.WorkDir)
		}
		if e.Image == "host" || strings.HasPrefix(e.Image, "dir:") || strings.HasPrefix(e.Image, "tar:") {
			t.Errorf("image %q", e.Image)
		}
		if slices.Contains(e.Network.Asked, "www.example.com") {
			t.Error("what the user has allowed is asked for")
		}
		if b := e.Build; b != nil && (!filepath.IsLocal(b.Context) || !filepath.IsLocal(b.Dockerfile)) && e.Err() == nil {
			t.Errorf("build %+v", b)
		}
		for name := range e.Env {
			if strings.HasPrefix(name, "LD_") || name == "PATH" {
				t.Errorf("variable %q", name)
			}
		}
	})
}

// TestUser: programs are the remote user, without one that of the container, and not root.
func TestUser(t *testing.T) {
	for text, want := range map[string]string{
		`"remoteUser": "node"`:                             "node",
		`"remoteUser": "node", "containerUser": "www"`:     "node",
		`"containerUser": "www", "remoteUser": "node"`:     "node",
		`"containerUser": "www:7"`:                         "www:7",
		`"remoteUser": "cove"`:                             "",
		`"remoteUser": "root", "containerUser": "www"`:     "",
		`"remoteUser": "${localEnv:TERM_THEME}"`:           "dark",
		`"remoteUser": "node", "build": {"target": "dev"}`: "node",
	} {
		if e := evaluated(t, `{"image": "a", `+text+`}`); e.User != want {
			t.Errorf("%s: %q, want %q", text, e.User, want)
		}
	}
}

// TestVolumes: volumes and directories in memory are the sandbox's own; other mounts are left out one by one, each with
// the reason of its kind.
func TestVolumes(t *testing.T) {
	e := evaluated(t, `{"image": "a", "mounts": ["source=/,target=/host,type=bind", "source=/,target=/root-of-host",
		{"type": "volume", "source": "d", "target": "/usr/local/data"}, "source=m,target=${containerWorkspaceFolder}/m",
		"type=tmpfs,dst=/fast,tmpfs-size=1m", "type=tmpfs,target=/tmp/x", "type=volume,target=/workspace",
		"type=volume,target=/home", "type=volume,target=/proc/x", "type=volume,target=rel", "type=image,source=i,target=/i",
		"type=volume,source=again,target=/fast", {"type": "tmpfs", "target": "/t", "tmpfs-size": "many"}, 3]}`)
	want := []cove.Volume{{Target: "/usr/local/data"}, {Target: "/workspace/m"},
		{Target: "/fast", Memory: true, Size: 1 << 20}}
	if !slices.Equal(e.Volumes, want) {
		t.Errorf("%+v", e.Volumes)
	}
	var got []string
	for _, l := range e.LeftOut {
		got = append(got, l.Key+": "+l.Why)
	}
	for _, want := range []string{"mounts /host: a file of a repository attaches nothing", "mounts /root-of-host: a file",
		"mounts: a file", "mounts /workspace: the checkout", "mounts /home: it would hide", "mounts /proc/x: a mount",
		"mounts rel: a mount", "mounts /i: the files of another image", "mounts /fast: two volumes", "mounts /t: its size"} {
		if !strings.Contains(strings.Join(got, "\n"), want) {
			t.Errorf("not said: %s\n%s", want, strings.Join(got, "\n"))
		}
	}
	if len(got) != 10 {
		t.Errorf("left out: %q", got)
	}
	// Without an image there is no layer, and the machine's toolchain has nothing attached to it.
	if e := evaluated(t, `{"mounts": ["type=volume,target=/usr/x", "type=volume,target=/data"]}`); len(e.LeftOut) != 1 ||
		!slices.Equal(e.Volumes, []cove.Volume{{Target: "/data"}}) {
		t.Errorf("%+v, %+v", e.LeftOut, e.Volumes)
	}
	if e := evaluated(t, `{"mounts": [], "forwardPorts": [], "appPort": null}`); len(e.LeftOut)+len(e.Ports) > 0 {
		t.Errorf("%v, %v", e.LeftOut, e.Ports)
	}
}

// TestPorts: ports of the file are taken as the specification and "docker run -p" have them.
func TestPorts(t *testing.T) {
	for text, want := range map[string]string{
		`"forwardPorts": [3000, "localhost:4000", "127.0.0.1:5000", 3000]`: "3000 4000 5000",
		`"forwardPorts": 80`:                     "80",
		`"appPort": 80`:                          "80",
		`"appPort": "8000:80"`:                   "8000:80",
		`"appPort": [80, "0.0.0.0:8001:81/tcp"]`: "80 8001:81",
		`"appPort": "8000-8010:80"`:              "80",
		`"appPort": "53:53/udp"`:                 "without: appPort 53:53/udp: only TCP is carried",
		`"forwardPorts": [0, 65536, "a b", {}]`: "without: forwardPorts 0: " + noPort + " forwardPorts 65536: " + noPort +
			" forwardPorts a b: " + noPort + " forwardPorts {}: " + noPort,
		`"forwardPorts": ["db:5432"]`: "without: forwardPorts db:5432: no service beside the sandbox has this name",
	} {
		e := evaluated(t, `{"image": "a", `+text+`}`)
		var got []string
		for _, p := range e.Ports {
			got = append(got, p.String())
		}
		if len(e.LeftOut) > 0 {
			got = append(got, "without:")
		}
		for _, l := range e.LeftOut {
			got = append(got, l.Key+": "+l.Why)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %s, want %s", text, strings.Join(got, " "), want)
		}
	}
}
