//go:build linux

package egress

import (
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/api"
)

// TestNpmTrees: what one sandbox has fetched, npm in the next one of the same owner finds as its own, and asks for
// nothing. Sandboxes of others, and those that may not read from the registry, have none of it. A long-lived one keeps
// what it changes.
func TestNpmTrees(t *testing.T) {
	need(t, "/usr/bin/npm", "/usr/bin/node")
	l := newLab(t)
	archive := tinyTarball()
	sum := sha512.Sum512(archive)
	integrity := "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
	const at = "https://npm.lab.test/tiny/-/tiny-1.0.0.tgz"
	l.Site("npm.lab.test", static(map[string]string{
		"/tiny/1.0.0": `{"name":"tiny","version":"1.0.0","dist":{"tarball":"` + at + `","integrity":"` +
			integrity + `"}}`,
		"/tiny/-/tiny-1.0.0.tgz": string(archive)}))
	l.file(t, ".npmrc", "registry=https://npm.lab.test/\n")
	lock := `{"name":"p","version":"1.0.0","lockfileVersion":3,"requires":true,"packages":{"":{"name":"p",` +
		`"version":"1.0.0","dependencies":{"tiny":"1.0.0"}},"node_modules/tiny":{"version":"1.0.0","resolved":"` + at +
		`","integrity":"` + integrity + `"}}}`
	script := `ls -A ~; mkdir /tmp/p; cd /tmp/p
echo '{"name":"p","version":"1.0.0","dependencies":{"tiny":"1.0.0"}}' > package.json
echo '` + lock + `' > package-lock.json
npm ci --registry https://npm.lab.test --no-audit --no-fund --no-update-notifier --fetch-retries=0 --loglevel=error &&
	node -p 'require("tiny")'; find ~/.npm -path '*content-v2*' -type f | wc -l
npm cache clean --force 2> /dev/null; find ~/.npm -path '*content-v2*' -type f | wc -l`
	defer l.serve(t, entry("one", "")+entry("two", ""))()
	run := func(key, network string) api.Execution {
		t.Helper()
		code, _ := json.Marshal(script)
		status, text := l.ask(t, key, "POST", "/execute", fmt.Sprintf(`{"language":"bash","code":%s,"permissions":{`+
			`"network":{"enabled":true,%s}},"limits":{"memory_mb":1024,"pids_limit":200}}`, code, network))
		var out api.Execution
		if err := json.Unmarshal([]byte(text), &out); status != 200 || err != nil {
			t.Fatalf("%d %s", status, text)
		}
		return out
	}
	asked := func() (registry, gateway int) {
		registry = len(l.Requests())
		log := l.cove(t, "network", "log", "--limit", "1000", "--json")
		return registry, strings.Count(log.stdout, `"path": "/tiny/-/`)
	}
	const preset = `"presets":["npm"]`
	if out := run("one", preset); !strings.Contains(out.Output, "tiny from npm\n1\n0\n") {
		t.Fatalf("the first sandbox: %+v, arrived: %q", out, l.seen())
	}
	registry, gateway := asked()
	if registry != 2 || gateway != 1 {
		t.Errorf("the first sandbox asked the registry %d times, the gateway %d times: %q", registry, gateway, l.seen())
	}
	for range 2 {
		out := run("one", preset)
		if !strings.HasPrefix(out.Output, ".npm\n") || !strings.HasSuffix(out.Output, "tiny from npm\n1\n0\n") {
			t.Errorf("the next sandbox of the same owner: %+v", out)
		}
	}
	if r, g := asked(); r != registry || g != gateway {
		t.Errorf("the next ones asked the registry %d times, the gateway %d times", r-registry, g-gateway)
	}
	if out := run("two", preset); strings.HasPrefix(out.Output, ".npm\n") || !strings.Contains(out.Output, "from npm") {
		t.Errorf("the first sandbox of another owner: %+v", out)
	}
	if r, g := asked(); r != registry || g != gateway+1 {
		t.Errorf("that of another owner asked the registry %d times, the gateway %d times", r-registry, g-gateway)
	}
	for _, network := range []string{`"allow":["other.lab.test"]`, `"allow":["npm.lab.test:8443"]`} {
		if out := run("one", network); strings.Contains(out.Output, ".npm\n") || strings.Contains(out.Output, "from npm") {
			t.Errorf("a sandbox with the network %s: %+v", network, out)
		}
	}
	out := l.cove(t, "run", "bash", "-c", script, "--preset", "npm", "--memory", "1G", "--pids", "200")
	if !strings.HasSuffix(out.stdout, "tiny from npm\n1\n0\n") || strings.HasPrefix(out.stdout, ".npm\n") {
		t.Errorf("the first sandbox of the machine's user: %+v", out)
	}
	registry, gateway = asked()
	does := func(want string, args ...string) {
		t.Helper()
		if out := l.cove(t, args...); out.code != 0 || !strings.HasSuffix(out.stdout, want) {
			t.Errorf("%q: %+v", args, out)
		}
	}
	does("box\n", "new", "--empty", "--name", "box", "--preset", "npm", "--memory", "1G", "--no-attach")
	does("tiny from npm\n1\n0\nkept\n", "exec", "box", "--", "bash", "-c", script+"\necho kept | tee ~/.npm/mine")
	does("", "stop", "box")
	does("", "start", "box")
	does("kept\n0\n", "exec", "box", "--", "sh", "-c", "cat ~/.npm/mine; find ~/.npm -path '*content-v2*' -type f | wc -l")
	does("", "destroy", "box", "--yes")
	if r, g := asked(); r != registry || g != gateway {
		t.Errorf("a long-lived one asked the registry %d times, the gateway %d times", r-registry, g-gateway)
	}
}
