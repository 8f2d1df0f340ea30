//go:build linux

package egress

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/test/await"
	"github.com/cove-sandbox/cove/test/debian"
)

// TestDevContainerWritten: the reference command line starts the dev container that "cove devcontainer write" makes of
// that of a repository, which would leave the wall, and the gateway is its only network. A restart keeps it so.
func TestDevContainerWritten(t *testing.T) {
	program := os.Getenv("COVE_TEST_DEVCONTAINERS")
	if program == "" || os.Getenv("DOCKER_HOST") == "" {
		t.Skip("needs a Docker daemon, and COVE_TEST_DEVCONTAINERS=$(scripts/devcontainers-cli.sh .cache/devcontainers-cli)")
	}
	root := debian.Root(t)
	l := newLab(t)
	image := fmt.Sprintf("cove-devcontainer-test-%d", os.Getpid())
	load := exec.Command("sh", "-c", `tar -C "$0" -c --exclude ./var/lib/apt . | docker import - "$1"`, root, image)
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	top := filepath.Join(l.dir, "shop")
	files := map[string]string{
		"shop/Dockerfile": "FROM " + image + "\nCOPY built /built\n",
		"shop/built":      "built",
		"shop/hooks.sh": "for f in .git/hooks/x .git/config .devcontainer/x; do (echo x >>$f) || echo no $f; done " +
			">refused\nmv .git .g || echo no .git >>refused\ntouch .git/x\n",
		"shop/.devcontainer/tool/devcontainer-feature.json": `{"id": "tool", "version": "1.0.0", "name": "tool"}`,
		"shop/.devcontainer/tool/install.sh":                "#!/bin/sh\necho 'echo a tool' >/bin/tool; chmod +x /bin/tool\n",
		"shop/.devcontainer/devcontainer.json": `{
	// of the shop
	"build": {"dockerfile": "../Dockerfile", "context": ".."},
	"features": {"./tool": {}},
	"initializeCommand": "touch initialized",
	"privileged": true,
	"capAdd": ["SYS_ADMIN"],
	"securityOpt": ["seccomp=unconfined"],
	"runArgs": ["--network=host", "--pid=host", "--hostname", "shop", "--memory=512m"],
	"mounts": ["source=/,target=/host,type=bind", "source=shop-${devcontainerId},target=/kept,type=volume"],
	"containerEnv": {"STAGE": "test", "KEY": "${localEnv:LAB_SECRET}", "SSL_CERT_FILE": "/etc/own"},
	"onCreateCommand": ["sh", "-c", "./box https://good.lab.test/x >fetched; echo $0 $STAGE \"[$KEY]\" >>fetched",
		"created"],
	"postCreateCommand": {"tool": "tool >tool.out",
		"status": "cat /proc/self/status /built >status; ls / >root; hostname >>root",
		"hooks": "sh /workspaces/shop/hooks.sh"},
	"postStartCommand": "./box https://good.lab.test/started >>starts",
}
`,
	}
	for name, text := range files {
		path := l.file(t, name, text)
		if strings.HasSuffix(name, ".sh") {
			os.Chmod(path, 0o755)
		}
	}
	if out, err := exec.Command("git", "init", "-q", top).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := exec.Command("tar", "-C", top, "-xf", boxArchive(t)).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	written := l.cove(t, "devcontainer", "write", "--workspace-folder", top)
	for _, want := range []string{"privileged is left out", "capAdd", "securityOpt", "initializeCommand",
		"runArgs --network host", "runArgs --pid host", "mounts", "LAB_SECRET", "containerEnv.SSL_CERT_FILE",
		"gateway attach --label"} {
		if !strings.Contains(written.stderr, want) {
			t.Errorf("it does not say %q: %+v", want, written)
		}
	}
	if again := l.cove(t, "devcontainer", "write", "--workspace-folder", top); again.code == 0 {
		t.Error("it writes over what is there")
	}
	config := filepath.Join(filepath.Dir(strings.Split(written.stdout, "\n")[0]), "devcontainer.json")
	_, after, _ := strings.Cut(written.stderr, "--label ")
	label, _, _ := strings.Cut(after, "\n")
	if strings.HasPrefix(config, top) || !strings.HasPrefix(label, "cove.devcontainer=") {
		t.Fatalf("%+v", written)
	}
	cli := func(ctx context.Context, args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, program, append(args, "--workspace-folder", top, "--config", config)...)
		cmd.Env = append(os.Environ(), "LAB_SECRET=sesame")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	l.gateway(t)
	var out string
	up := make(chan error)
	go func() {
		var err error
		out, err = cli(t.Context(), "up")
		up <- err
	}()
	t.Cleanup(func() {
		exec.Command("sh", "-c", `docker rm --force --volumes $(docker ps --all --quiet --filter "label=$0")`,
			"devcontainer.local_folder="+top).Run()
		exec.Command("sh", "-c", `docker image rm --force $(docker image ls --quiet --filter label=devcontainer.metadata) $0`,
			image).Run()
	})
	await.That(t, "the first command waits for the gateway", func() bool {
		runs, _ := exec.Command("sh", "-c", `docker top $(docker ps --quiet --filter "label=$0")`,
			"devcontainer.local_folder="+top).Output()
		return strings.Contains(string(runs), "run cove gateway attach")
	})
	l.stays(t, "", "gateway", "attach", "--label", label, "--allow", "good.lab.test")
	if err := <-up; err != nil {
		t.Fatalf("up: %v\n%s", err, out)
	}
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(top, name))
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return string(data)
	}
	for name, want := range map[string]string{
		"fetched":  "200 GET good.lab.test/x over https\ncreated test []\n",
		"tool.out": "a tool\n",
		"refused":  "no .git/hooks/x\nno .git/config\nno .devcontainer/x\nno .git\n",
		".git/x":   "",
		"starts":   "200 GET good.lab.test/started over https\n",
	} {
		if got := read(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	status := read("status")
	for _, want := range []string{"NoNewPrivs:\t1", "Seccomp:\t2", "CapBnd:\t00000000000405fb", "built"} {
		if !strings.Contains(status, want) {
			t.Errorf("status has no %q:\n%s", want, status)
		}
	}
	if seen := read("root"); strings.Contains(seen, "host\n") || !strings.Contains(seen, "kept\n") ||
		!strings.HasSuffix(seen, "shop\n") {
		t.Errorf("at its root: %s", seen)
	}
	if _, err := os.Stat(filepath.Join(top, "initialized")); err == nil {
		t.Error("initializeCommand ran")
	}
	out, err := cli(t.Context(), "exec", "./box", "http://bad.lab.test/x")
	if err == nil && strings.Contains(out, "200 GET") {
		t.Errorf("past the policy: %s", out)
	}
	if out, err := exec.Command("sh", "-c", `docker restart --time 0 $(docker ps --quiet --filter "label=$0")`,
		"devcontainer.local_folder="+top).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := cli(t.Context(), "up"); err != nil {
		t.Fatalf("up again: %v\n%s", err, out)
	}
	await.That(t, "the command of each start reaches what it may",
		func() bool { return strings.Count(read("starts"), "200 GET") == 2 })
}
