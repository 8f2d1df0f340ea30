package sandboxes

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// hostile is a repository whose dev container would leave a container: HOST in its texts is a directory of the machine,
// KEY a variable of it.
type hostile struct {
	name    string
	file    string            // .devcontainer/devcontainer.json, or the text of more of files
	files   map[string]string // more; a text "-> X" is a symbolic link
	refused bool              // else a file is written, and a container started by it is held
}

const buildOfContext = `{"build": {"dockerfile": "Dockerfile", "context": %q}}`

var hostiles = []hostile{
	{name: "none", file: `{"image": "debian"}`},
	{name: "harmless", file: `{"image": "debian", "mounts": ["type=volume,source=v-${devcontainerId},target=/v",
		{"type": "tmpfs", "target": "/t"}], "postCreateCommand": "echo ${HOME:-x} ${A%.*}",
		"remoteEnv": {"PATH": "${containerEnv:PATH}:/x"}, "runArgs": ["-e", "A=b", "--init"]}`},

	{name: "a bind in the target", file: `{"image": "debian", "mounts": [
		{"type": "volume", "source": "c-${devcontainerId}", "target": "/cache,type=bind,src=HOST"}]}`},
	{name: "a bind in the source", file: `{"image": "debian", "mounts": [
		{"type": "volume", "source": "${devcontainerId},type=bind,src=HOST", "target": "/cache"}]}`},
	{name: "a bind in the place of tmpfs", file: `{"image": "debian", "mounts": [
		{"type": "tmpfs", "target": "/t,type=bind,src=HOST"}]}`},
	{name: "a bind in quotes", file: `{"image": "debian", "mounts": [
		"type=volume,\"target=/t\",\"type=bind\",\"source=HOST\""]}`},
	{name: "two types", file: `{"image": "debian", "mounts": [
		"type=bind,src=HOST,type=volume,source=${devcontainerId},target=/t",
		"type=volume,source=${devcontainerId},target=/u,type=bind,src=HOST"]}`},
	{name: "a plain bind", file: `{"image": "debian", "mounts": [{"type": "bind", "source": "HOST", "target": "/h"},
		"source=HOST,target=/g,type=bind", "TYPE=bind,source=HOST,target=/f"]}`},
	{name: "a volume that is a bind", file: `{"image": "debian", "mounts": [
		"type=volume,source=${devcontainerId},target=/t,volume-driver=local,volume-opt=type=none,volume-opt=device=HOST"]}`},
	{name: "a volume of another container", file: `{"image": "debian", "mounts": ["type=volume,source=db,target=/d"]}`},
	{name: "a bind in a default", file: `{"image": "debian", "mounts": [
		{"type": "tmpfs", "target": "${localEnv:NONE:/t,type=bind,src=HOST}"}]}`},
	{name: "a bind in the folder", file: `{"image": "debian", "workspaceFolder": "/w,type=bind,src=HOST", "mounts": [
		{"type": "tmpfs", "target": "${containerWorkspaceFolder}"}]}`, refused: true},
	{name: "a line in the target", file: `{"image": "debian", "mounts": [
		{"type": "tmpfs", "target": "/t\ntype=bind,src=HOST"}]}`},

	{name: "another workspace", file: `{"image": "debian", "workspaceMount": "type=bind,source=HOST,target=/w"}`},
	{name: "a workspace above", file: `{"image": "debian",
		"workspaceMount": "type=bind,source=${localWorkspaceFolder}/..,target=/w"}`},
	{name: "a link for the workspace", file: `{"image": "debian",
		"workspaceMount": "source=${localWorkspaceFolder}/data,target=/w,type=bind"}`,
		files: map[string]string{"data": "-> HOST"}, refused: true},
	{name: "a link on the way to the workspace", file: `{"image": "debian",
		"workspaceMount": "source=${localWorkspaceFolder}/data/below,target=/w,type=bind"}`,
		files: map[string]string{"data": "-> HOST"}, refused: true},
	{name: "two workspaces", file: `{"image": "debian",
		"workspaceMount": "source=${localWorkspaceFolder},target=/w,type=bind,src=HOST"}`},
	{name: "a workspace that spreads", file: `{"image": "debian",
		"workspaceMount": "source=${localWorkspaceFolder},target=/w,type=bind,bind-propagation=shared"}`},
	{name: "a part for the workspace", file: `{"image": "debian", "workspaceFolder": "/w",
		"workspaceMount": "source=${localWorkspaceFolder}/part,target=/w,type=bind"}`,
		files: map[string]string{"part/.envrc": "x"}},

	{name: "a variable in a variable", file: `{"image": "debian",
		"containerEnv": {"X": "${localEnv:Q:${localEnv:KEY}}"}}`, refused: true},
	{name: "a variable in a remote variable", file: `{"image": "debian",
		"remoteEnv": {"X": "${localEnv:Q:${env:KEY}}"}}`, refused: true},
	{name: "variables", file: `{"image": "debian", "name": "${localEnv:KEY}", "containerEnv": {"X": "${env:KEY}"},
		"remoteEnv": {"Y": "${localEnv:KEY:}"}, "customizations": {"vscode": {"settings": {"x": ["${env:KEY}"]}}},
		"postCreateCommand": {"a": ["echo", "${localEnv:KEY}"], "b": "echo ${localEnv:KEY}"},
		"runArgs": ["-e", "A=${localEnv:KEY}", "-e", "KEY", "--env=KEY", "-eKEY", "--env-file=HOST/canary"]}`},
	{name: "a variable in a variable of a shell", file: `{"image": "debian",
		"postCreateCommand": "echo ${A:-${localEnv:KEY}}"}`, refused: true},
	{name: "a variable in a variable of an editor", file: `{"image": "debian",
		"customizations": {"vscode": {"settings": {"x": "${localEnv:Q:${localEnv:KEY}}"}}}}`, refused: true},
	{name: "a variable in the name of a setting", file: `{"image": "debian",
		"customizations": {"vscode": {"settings": {"${localEnv:KEY}": 1}}}}`},
	{name: "a variable of an option", file: `{"image": "debian", "features": {"./f": {"v": "${localEnv:KEY}"}}}`,
		files: map[string]string{".devcontainer/f/devcontainer-feature.json": `{"id": "f", "version": "1.0.0",
		"options": {"v": {"type": "string", "default": "x"}}}`, ".devcontainer/f/install.sh": "true"}},
	{name: "a variable of an argument", file: `{"build": {"dockerfile": "Dockerfile",
		"args": {"A": "${localEnv:Q:${localEnv:KEY}}", "B": "${localEnv:KEY}"}}}`,
		files: map[string]string{".devcontainer/Dockerfile": "FROM debian"}},

	{name: "options", file: `{"image": "debian", "runArgs": ["--privileged", "-v", "HOST:/h", "--volume=HOST:/h",
		"--device", "/dev/kvm", "--pid=host", "--ipc", "host", "--volumes-from", "x", "--userns=host", "--gpus=all",
		"--cgroupns=host", "--publish", "80:80", "--mount", "type=bind,source=HOST,target=/h", "-vHOST:/h",
		"--group-add=0", "--sysctl=a=b", "--runtime=x", "--cgroup-parent=/", "--uts=host", "--link=x",
		"--device-cgroup-rule=a *:* rwm", "--cidfile=HOST/x", "--memory-swap=-1", "--security-opt", "seccomp=unconfined",
		"--security-opt=apparmor=unconfined", "--cap-add=ALL", "--network", "host", "--net=container:x"]}`},
	{name: "another image as a value", file: `{"image": "debian", "runArgs": ["--rm=evil/image"]}`},
	{name: "another image as a word", file: `{"image": "debian", "runArgs": ["evil/image", "--", "evil/image"]}`},
	{name: "an option as a value", file: `{"image": "debian", "runArgs": ["--hostname", "--privileged"]}`},
	{name: "no value", file: `{"image": "debian", "runArgs": ["--hostname"]}`},
	{name: "labels", file: `{"image": "debian", "runArgs": ["--label", "devcontainer.local_folder=/trusted",
		"-l=cove.devcontainer=x", "--name", "builder"]}`},

	{name: "rights", file: `{"image": "debian", "privileged": true, "capAdd": ["SYS_ADMIN"],
		"securityOpt": ["seccomp=unconfined"], "appPort": "0.0.0.0:80:80", "hostRequirements": {"gpu": true}}`},
	{name: "a command of this machine", file: `{"image": "debian", "initializeCommand": "touch HOST/initialized"}`},
	{name: "commands of this machine", file: `{"image": "debian",
		"initializeCommand": {"a": ["touch", "HOST/initialized"]}}`},
	{name: "what is not known", file: `{"image": "debian", "hostCommand": "x", "extensions": ["a.b"],
		"secrets": {"KEY": {}}, "portsAttributes": {"1": {"elevateIfNeeded": true}}}`},
	{name: "an option as a user", file: `{"image": "debian", "containerUser": "--privileged"}`, refused: true},
	{name: "an option as an image", file: `{"image": "--privileged"}`, refused: true},
	{name: "a variable as an image", file: `{"image": "${localEnv:KEY}"}`, refused: true},
	{name: "a directory as an image", file: `{"image": "dir:HOST"}`, refused: true},
	{name: "a port of a variable", file: `{"image": "debian", "forwardPorts": ["${localEnv:KEY}:80"]}`},

	{name: "a link for the context", file: fmt.Sprintf(buildOfContext, "../data"),
		files: map[string]string{"data": "-> HOST", ".devcontainer/Dockerfile": "FROM debian\nCOPY canary /"}, refused: true},
	{name: "a link on the way to the context", file: fmt.Sprintf(buildOfContext, "../data/below"),
		files: map[string]string{"data": "-> HOST", ".devcontainer/Dockerfile": "FROM debian"}, refused: true},
	{name: "a context above", file: fmt.Sprintf(buildOfContext, "../.."),
		files: map[string]string{".devcontainer/Dockerfile": "FROM debian"}, refused: true},
	{name: "a link for the context of old", file: `{"dockerFile": "Dockerfile", "context": "../data"}`,
		files: map[string]string{"data": "-> HOST", ".devcontainer/Dockerfile": "FROM debian"}, refused: true},
	{name: "a context below", file: fmt.Sprintf(buildOfContext, "../a/b"),
		files: map[string]string{"a/b/x": "x", ".devcontainer/Dockerfile": "FROM debian"}},
	{name: "a link for the Dockerfile", file: `{"build": {"dockerfile": "Dockerfile"}}`,
		files: map[string]string{".devcontainer/Dockerfile": "-> HOST/canary"}, refused: true},
	{name: "options of the build", file: `{"build": {"dockerfile": "Dockerfile", "target": "a",
		"options": ["--network=host", "--secret=id=x,src=HOST/canary", "--build-context=x=HOST"],
		"cacheFrom": "type=local,src=HOST"}}`, files: map[string]string{".devcontainer/Dockerfile": "FROM debian AS a"}},
	{name: "an option as a target", file: `{"build": {"dockerfile": "Dockerfile", "target": "--network=host"}}`,
		files: map[string]string{".devcontainer/Dockerfile": "FROM debian"}, refused: true},
	{name: "a file of Compose", file: `{"dockerComposeFile": "c.yaml", "service": "a"}`,
		files: map[string]string{".devcontainer/c.yaml": "services: {a: {image: debian, privileged: true}}"}, refused: true},

	{name: "a feature with a bind", file: `{"image": "debian", "features": {"./f": {}}}`, refused: true,
		files: map[string]string{".devcontainer/f/install.sh": "true", ".devcontainer/f/devcontainer-feature.json": `{
		"id": "f", "version": "1.0.0", "mounts": [{"type": "bind", "source": "HOST", "target": "/h"}]}`}},
	{name: "a feature with a bind in the target", file: `{"image": "debian", "features": {"./f": {}}}`, refused: true,
		files: map[string]string{".devcontainer/f/install.sh": "true", ".devcontainer/f/devcontainer-feature.json": `{
		"id": "f", "version": "1.0.0", "mounts": [{"type": "tmpfs", "target": "/t,type=bind,src=HOST"}]}`}},
	{name: "a feature with rights", file: `{"image": "debian", "features": {"./f": {}}}`, refused: true,
		files: map[string]string{".devcontainer/f/install.sh": "true",
			".devcontainer/f/devcontainer-feature.json": `{"id": "f", "version": "1.0.0", "privileged": true}`}},
	{name: "a feature with rights that another one depends on", refused: true, file: `{"image": "debian",
		"features": {"./f": {}, "registry.example/not/fetched:1": {}}}`, files: map[string]string{
		".devcontainer/f/install.sh": "true", ".devcontainer/g/install.sh": "true",
		".devcontainer/f/devcontainer-feature.json": `{"id": "f", "version": "1.0.0",
			"dependsOn": {"../.devcontainer/g": {}}}`,
		".devcontainer/g/devcontainer-feature.json": `{"id": "g", "version": "1.0.0", "capAdd": ["SYS_ADMIN"]}`}},
	{name: "a feature with a variable", file: `{"image": "debian", "features": {"./f": {}}}`, refused: true,
		files: map[string]string{".devcontainer/f/install.sh": "true", ".devcontainer/f/devcontainer-feature.json": `{
		"id": "f", "version": "1.0.0", "postStartCommand": "echo ${localEnv:KEY}"}`}},
	{name: "a feature above", file: `{"image": "debian", "features": {"../../f": {}}}`, refused: true},
	{name: "a feature by an address", file: `{"image": "debian", "features": {"https://evil.example/f.tgz": {}}}`,
		refused: true},

	{name: "a line in the folder", files: map[string]string{
		".devcontainer/a\n{\"initializeCommand\": \"touch initialized\", \"image\": \"debian\"}\n/devcontainer.json": `{
		"image": "debian"}`}},
	{name: "a .git that is a link", file: `{"image": "debian"}`, files: map[string]string{".git": "-> HOST"},
		refused: true},
	{name: "no hooks", file: `{"image": "debian"}`, files: map[string]string{".git/hooks": ""}, refused: true},
	{name: "a socket", file: `{"image": "debian"}`, files: map[string]string{"a/s.sock": "="}, refused: true},
	{name: "a bind in the name of a repository", file: `{"image": "debian"}`, files: map[string]string{
		"a,type=bind,src=HOST/.git/hooks/x": "x", "a,type=bind,src=HOST/.git/config": "x",
		"a,type=bind,src=HOST/.git/HEAD": "ref: refs/heads/main"}, refused: true},
}

// TestDevContainerHostile: whatever a repository says, the reference command line gives Docker no argument that leads
// out of the container by the file that "cove devcontainer write" makes of it, or none is made. What the owner's own
// programs execute or obey is read-only.
func TestDevContainerHostile(t *testing.T) {
	program := os.Getenv("COVE_TEST_DEVCONTAINERS")
	if program == "" {
		t.Skip("needs COVE_TEST_DEVCONTAINERS=$(scripts/devcontainers-cli.sh .cache/devcontainers-cli)")
	}
	l := newLab(t)
	for _, dir := range []string{"bin", "host/below", "tmp"} {
		if err := os.MkdirAll(l.in(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	l.write("bin/docker", fakeDocker)
	os.Chmod(l.in("bin/docker"), 0o755)
	l.write("host/canary", "canary")
	for n, h := range hostiles {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			top := l.in(fmt.Sprintf("repositories/%d/shop", n))
			l.lays(t, top, h)
			write := l.command("cove", "devcontainer", "write", "--workspace-folder", top)
			var said strings.Builder
			write.Stderr = &said
			names, err := write.Output()
			if (err != nil) != h.refused {
				t.Fatalf("%v: %s", err, said.String())
			}
			if h.refused {
				return
			}
			var config string
			for name := range strings.Lines(string(names)) {
				if name = strings.TrimSpace(name); filepath.Base(name) == "devcontainer.json" {
					config = name
				}
			}
			if !filepath.IsAbs(config) {
				config = filepath.Join(top, config)
			}
			if strings.HasPrefix(config, top) {
				t.Errorf("a program in the container could change %s", config)
			}
			log := l.in(fmt.Sprintf("tmp/%d", n))
			up := l.command(program, "up", "--docker-path", l.in("bin/docker"), "--workspace-folder", top, "--config", config)
			up.Env = append(slices.Clone(l.env), "LOG="+log, "KEY=hostsecret", "TMPDIR="+l.in("tmp"))
			out, _ := up.CombinedOutput() // which ends with an error: the container does not start
			calls, err := os.ReadFile(log)
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			runs := 0
			for call := range strings.SplitSeq(strings.TrimSuffix(string(calls), "\x00\x00"), "\x00\x00") {
				args := strings.Split(call, "\x00")
				if strings.Contains(call, "hostsecret") {
					t.Errorf("a variable of this machine: %q", args)
				}
				switch {
				case args[0] == "run":
					runs++
					l.heldRun(t, args[1:], top)
				case args[0] == "build" || args[0] == "buildx" && args[1] == "build":
					l.heldBuild(t, args[1:], top)
				}
			}
			if runs != 1 {
				t.Errorf("%d containers: %s\n%s", runs, out, said.String())
			}
			for _, name := range []string{l.in("host/initialized"), filepath.Join(top, "initialized")} {
				if _, err := os.Lstat(name); err == nil {
					t.Errorf("a command made %s", name)
				}
			}
		})
	}
}

// lays makes a checkout with what is hostile in it.
func (l *lab) lays(t *testing.T, top string, h hostile) {
	t.Helper()
	if out, err := exec.Command("git", "init", "-q", top).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	host := func(text string) string { return strings.ReplaceAll(text, "HOST", l.in("host")) }
	files := map[string]string{"README": "a shop"}
	if h.file != "" {
		files[".devcontainer/devcontainer.json"] = h.file
	}
	for name, text := range h.files {
		files[name] = text
	}
	for name, text := range files {
		if !strings.HasPrefix(name, "a,type") {
			name = host(name)
		}
		at := filepath.Join(top, name)
		os.RemoveAll(at)
		err := os.MkdirAll(filepath.Dir(at), 0o755)
		target, link := strings.CutPrefix(text, "-> ")
		switch {
		case err != nil:
		case link:
			err = os.Symlink(host(target), at)
		case text == "=":
			var s net.Listener
			if s, err = net.Listen("unix", at); err == nil {
				t.Cleanup(func() { s.Close() })
			}
		case text != "":
			err = os.WriteFile(at, []byte(host(text)), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// valued are the options of "docker run" that the container may have, with whether each has a value of its own.
var valued = map[string]bool{"--sig-proxy": false, "-a": true, "--mount": true, "-l": true, "--label": true, "-e": true,
	"--env": true, "-u": true, "--user": true, "--network": true, "--security-opt": true, "--cap-drop": true,
	"--cap-add": true, "--memory": true, "--cpus": true, "--pids-limit": true, "--init": false, "--hostname": true,
	"--entrypoint": true}

// heldRun judges the arguments of "docker run".
func (l *lab) heldRun(t *testing.T, args []string, top string) {
	t.Helper()
	said := map[string][]string{}
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		option, value, joined := strings.Cut(args[0], "=")
		has, known := valued[option]
		if !known {
			t.Errorf("the option %s: %q", option, args)
			return
		}
		args = args[1:]
		if has && !joined && len(args) > 0 {
			value, args = args[0], args[1:]
		}
		said[option] = append(said[option], value)
	}
	if len(args) == 0 || args[0] != "debian" && !strings.HasPrefix(args[0], "vsc-shop-") {
		t.Errorf("the image %q", args)
	}
	for option, want := range map[string]string{"--network": "none", "--cap-drop": "ALL",
		"--security-opt": "no-new-privileges seccomp=" + l.in("home/devcontainers/written/*/seccomp.json")} {
		got := strings.Join(said[option], " ")
		if is, err := filepath.Match(want, got); !is || err != nil {
			t.Errorf("%s: %q", option, got)
		}
	}
	if len(said["--cap-add"]) != 10 || slices.Contains(said["--cap-add"], "ALL") ||
		slices.Contains(said["--cap-add"], "SYS_ADMIN") {
		t.Errorf("capabilities: %q", said["--cap-add"])
	}
	if labels := said["--label"]; len(labels) != 1 || !strings.HasPrefix(labels[0], "cove.devcontainer=") {
		t.Errorf("labels: %q", labels)
	}
	for _, label := range said["-l"] {
		if strings.HasPrefix(label, "devcontainer.local_folder=") && label != "devcontainer.local_folder="+top {
			t.Errorf("the label %s", label)
		}
	}
	for _, option := range []string{"-e", "--env"} {
		for _, value := range said[option] {
			if !strings.Contains(value, "=") {
				t.Errorf("a variable of this machine: %q", value)
			}
		}
	}
	readOnly := map[string]bool{}
	for _, mount := range said["--mount"] {
		m := map[string]string{}
		for field := range strings.SplitSeq(mount, ",") {
			name, value, _ := strings.Cut(field, "=")
			if _, twice := m[name]; twice || !slices.Contains([]string{"type", "source", "target", "readonly"}, name) {
				t.Errorf("the mount %q", mount)
			}
			m[name] = value
		}
		real, err := filepath.EvalSymlinks(m["source"])
		below, out := filepath.Rel(top, real)
		switch {
		case m["type"] == "tmpfs" && m["source"] == "", m["type"] == "volume" && !strings.Contains(m["source"], "/") &&
			m["source"] != "db":
		case m["type"] != "bind" || err != nil || out != nil || !filepath.IsLocal(below) || real != m["source"]:
			t.Errorf("the mount %q: %v", mount, err)
		default:
			_, is := m["readonly"]
			readOnly[below] = is
		}
	}
	for _, name := range []string{".git/config", ".git/hooks", ".devcontainer", "part/.envrc"} {
		_, whole := readOnly["."]
		_, err := os.Lstat(filepath.Join(top, name))
		if attached := whole || strings.HasPrefix(name, "part/"); attached && err == nil && !readOnly[name] {
			t.Errorf("%s can be written: %q", name, said["--mount"])
		}
	}
	for _, name := range []string{".git", "a", "a/b"} { // above what is read-only, or the context of a build
		_, err := os.Lstat(filepath.Join(top, name))
		if is, pinned := readOnly[name]; err == nil && (is || !pinned) && (name == ".git") == (readOnly[".git/config"]) {
			t.Errorf("%s can be replaced: %q", name, said["--mount"])
		}
	}
}

// heldBuild judges the arguments of "docker build": its context, the Dockerfile, and options.
func (l *lab) heldBuild(t *testing.T, args []string, top string) {
	t.Helper()
	context := args[len(args)-1]
	real, err := filepath.EvalSymlinks(context)
	if err != nil || real != context || !strings.HasPrefix(real+"/", top+"/") && !strings.HasPrefix(real, l.in("tmp")) {
		t.Errorf("the context %s: %v", context, err)
	}
	for i, arg := range args {
		option, value, _ := strings.Cut(arg, "=")
		switch {
		case arg == "-f" || arg == "--file":
			if info, err := os.Lstat(args[i+1]); err != nil || !info.Mode().IsRegular() || strings.HasPrefix(args[i+1], top) {
				t.Errorf("the Dockerfile %s: %v", args[i+1], err)
			}
		case arg == "--build-context":
			if _, place, _ := strings.Cut(args[i+1], "="); !strings.HasPrefix(place, l.in("tmp")) {
				t.Errorf("the context %s", place)
			}
		case slices.Contains([]string{"--network", "--secret", "--ssh", "--allow", "--cache-from", "--add-host",
			"--output"}, option) && value != "none":
			t.Errorf("the option %s", arg)
		}
	}
}

// fakeDocker notes its arguments, has an image, and starts no container.
const fakeDocker = `#!/bin/sh
{ printf '%s\0' "$@"; printf '\0'; } >>"$LOG"
case $1 in
-v) echo Docker version 27.0.0, build 1 ;;
version) echo 27.0.0 ;;
inspect)
	echo '[{"Id": "sha256:0", "Architecture": "amd64", "Os": "linux", "Config": {"User": "", "Env": [], "Labels": {}}}]'
	;;
run) exit 1 ;;
events) exec cat ;;
buildx) [ "$2" != version ] || echo github.com/docker/buildx v0.10.0 1 ;;
esac
`
