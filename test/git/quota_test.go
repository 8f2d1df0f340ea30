//go:build linux

package git

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/git/gittest"
	"github.com/cove-sandbox/cove/test/await"
)

// public is the name of the git server for callers with an API key, who may not reach services of this machine.
const public = "forge.test"

// proxy starts a company's proxy, at which every name is the lab's git server, and returns its address.
func (l *lab) proxy() string {
	p := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		there, err := net.Dial("tcp", l.server.Addr().String())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer there.Close()
		here, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			l.t.Error(err)
			return
		}
		defer here.Close()
		io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { io.Copy(there, here); there.Close() }()
		io.Copy(here, there)
	}))
	l.t.Cleanup(p.Close)
	return p.URL
}

// asKey starts a server of Cove's in a lab, and returns the lab as the holder of an API key, which "cove config
// new-key" makes with some flags.
func (l *lab) asKey(flags ...string) *lab {
	l.t.Helper()
	l.write("cove.yaml", fmt.Sprintf("gateway:\n  extra_cas: [%s]\n  upstream_proxy: %s\n", l.server.CA, l.proxy()))
	said := l.cove(append([]string{"config", "new-key", "ci"}, flags...)...)
	before, keys, _ := strings.Cut(said, "api_keys")
	key := regexp.MustCompile(`(?m)^key: *(\S+)`).FindStringSubmatch(before)
	config, err := os.ReadFile(l.path("cove.yaml"))
	if err != nil || key == nil {
		l.t.Fatalf("%v in %s", err, said)
	}
	l.write("cove.yaml", string(config)+"api_keys"+keys)
	server, log := l.command("serve", "--listen", "127.0.0.1:0"), &output{}
	server.Stderr = log
	if err := server.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		if l.t.Failed() {
			l.t.Logf("the server's log:\n%s", log)
		}
		server.Process.Signal(os.Interrupt)
		server.Wait()
	})
	var address []string
	await.That(l.t, "the server listens", func() bool {
		address = regexp.MustCompile(`address=(127\.0\.0\.1:\d+)`).FindStringSubmatch(log.String())
		return address != nil
	})
	l.t.Cleanup(func() {
		names, _ := l.command("list", "-q").Output()
		for _, name := range strings.Fields(string(names)) {
			l.command("destroy", "--yes", name).Run()
		}
	})
	caller := *l
	caller.env = []string{"COVE_SERVER=http://" + address[1], "COVE_API_KEY=" + key[1]}
	return &caller
}

// usedUp is the error of a key of which the CPU time is used up.
const usedUp = "this API key has used [0-9.]+ s of CPU time in the last hour, of %s s"

// isUsedUp reports whether a text has that error, with what to do about it.
func isUsedUp(text, of string) bool {
	return regexp.MustCompile(fmt.Sprintf(usedUp, of)).MatchString(text) && strings.Contains(text, "raise cpu_seconds")
}

// TestQuotaOfPushes: the sandboxes in which pushes and fetches are looked into use the CPU time of the key in whose
// sandbox git is. Where it is used up they are refused, in words that git shows, and what needs no look goes on. The
// machine's owner pushes as before.
func TestQuotaOfPushes(t *testing.T) {
	l := newLab(t, gittest.Options{Names: []string{public}})
	r := l.world("repo.git")
	url := l.server.URLAt(public, "repo.git")
	policy := l.write("box.yaml", fmt.Sprintf("rules: [{hosts: %s, ports: %d}]\ngit: [{remote: %s, push: own/**}]\n",
		public, l.server.Addr().Port, url))
	c := l.asKey("--cpu-seconds", "hour=0.5")
	c.cove("new", "--empty", "--no-attach", "--name", "box", "--policy", policy)
	// What the command itself uses is counted each minute and at its end: until then what is looked into counts alone.
	script := strings.NewReplacer("URL", url, "ONE", strings.TrimSpace(r.Run("rev-parse", "main~1")),
		"TWO", strings.TrimSpace(r.Run("rev-parse", "main~2"))).Replace(`
cd /tmp; git clone -q --depth 1 URL a; cd a
git config user.name x; git config user.email x@git.test
git fetch -q --depth 1 origin ONE && echo FETCHED BEFORE
for i in $(seq 60); do
	git commit -q --allow-empty -m $i; git push -q origin HEAD:refs/heads/own/$i 2>/tmp/said || break
	echo PUSHED
done
cat /tmp/said
git fetch -q --depth 1 origin TWO && echo FETCHED AFTER
git fetch -q origin main && echo FETCHED MAIN
`)
	cmd := c.command("exec", "box", "--", "bash", "-c", script)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Run()
	said := out.String()
	pushed := strings.Count(said, "PUSHED\n")
	if !strings.Contains(said, "FETCHED BEFORE\n") || pushed == 0 || pushed == 60 ||
		!strings.Contains(said, "FETCHED MAIN\n") {
		t.Errorf("within the CPU time, and beyond it: %s", said)
	}
	push, fetch, _ := strings.Cut(said, "! [remote rejected]")
	if !isUsedUp(push, "0.5") || !isUsedUp(fetch, "0.5") || strings.Contains(said, "FETCHED AFTER\n") {
		t.Errorf("with the CPU time used up: %s", said)
	}
	if refs := r.Refs(); strings.Count(refs, "refs/heads/own/") != pushed {
		t.Errorf("%d pushes went through, and the server has %s", pushed, refs)
	}
	if _, err := c.command("exec", "box", "--", "true").Output(); err == nil {
		t.Error("a command begins with the CPU time used up")
	}
	if got := l.cove("run", "bash", "-c", strings.ReplaceAll(`cd /tmp; git clone -q URL a; cd a
git -c user.name=x -c user.email=x@git.test commit -q --allow-empty -m owner
git push -q origin HEAD:refs/heads/own/owner && echo PUSHED`, "URL", url), "--policy", policy,
		"--pids", "200"); got != "PUSHED\n" {
		t.Errorf("the machine's owner: %s", got)
	}
}
