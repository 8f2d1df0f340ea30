//go:build linux

package git

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/cove-sandbox/cove/internal/git/gittest"
)

// peak is the most memory that the gateway has had, in bytes.
func (l *lab) peak() int64 {
	l.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", l.gateway.Process.Pid))
	if err != nil {
		l.t.Fatal(err)
	}
	found := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(text)
	if found == nil {
		l.t.Fatal("the kernel does not say")
	}
	kib, _ := strconv.ParseInt(string(found[1]), 10, 64)
	return kib << 10
}

// TestLarge: a pack of more than 200 MiB is pushed and fetched, and the gateway
// needs no more memory for it than for a small one.
func TestLarge(t *testing.T) {
	l := newLab(t, account)
	r := l.server.Create("repo.git")
	r.Run("config", "core.bigFileThreshold", "1m") // the origin's git looks for no deltas, which are none of random bytes
	git, _ := l.client("box", l.policy("- {remote: REPO, push: own}\n"))
	git.Run("clone", "-q", l.remote("repo.git"), "a")
	git = git.In("a")
	git.Commit("small", "small", "1\n")
	git.Run("push", "-q", "origin", "HEAD:refs/heads/own")
	before := l.peak()
	const files, size = 14, 15 << 20
	for i := range files {
		git.Write(fmt.Sprintf("large-%d", i), large(size, byte(i)))
	}
	git = git.With("GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=core.compression", "GIT_CONFIG_VALUE_0=0",
		"GIT_CONFIG_KEY_1=pack.window", "GIT_CONFIG_VALUE_1=0")
	id := git.Commit("large")
	git.Run("push", "-q", "origin", "HEAD:refs/heads/own")
	if !strings.Contains(r.Refs(), "refs/heads/own "+id) {
		t.Errorf("%s", r.Refs())
	}
	var pushed int64
	for _, got := range l.server.Received() {
		pushed = max(pushed, got.Body)
	}
	if pushed < files*size {
		t.Errorf("the server got %d bytes", pushed)
	}
	git.In("..").Run("clone", "-q", "-b", "own", l.remote("repo.git"), "b")
	if got := git.In("../b").Run("rev-parse", "HEAD"); got != id {
		t.Errorf("fetched %s", got)
	}
	if grown := l.peak() - before; grown > 48<<20 {
		t.Errorf("the gateway's memory has grown by %d MiB", grown>>20)
	} else {
		t.Logf("%d MiB were pushed; the gateway's memory has grown by %d MiB", pushed>>20, grown>>20)
	}
	left, err := filepath.Glob(l.path(home) + "/gateway/pushes/*")
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

// TestCrowd: 20 sandboxes push to branches of their own and fetch, all at once.
func TestCrowd(t *testing.T) {
	l := newLab(t, account)
	r := l.server.Create("repo.git")
	const crowd = 20
	var gits [crowd]gittest.Git
	for i := range gits {
		gits[i], _ = l.client(fmt.Sprintf("box%d", i), l.policy(fmt.Sprintf("- {remote: REPO, push: own-%d}\n", i)))
	}
	var all sync.WaitGroup
	var ids [crowd]string
	for i, git := range gits {
		all.Go(func() {
			if got := git.Try("clone", "-q", l.remote("repo.git"), "a"); got.Code != 0 {
				t.Errorf("%d: %+v", i, got)
				return
			}
			git := git.In("a")
			for n := range 3 {
				ids[i] = git.Commit(fmt.Sprint(n), fmt.Sprintf("work-%d", i), fmt.Sprint(n)+large(100_000))
				if got := git.Try("push", "-q", "origin", fmt.Sprintf("HEAD:refs/heads/own-%d", i)); got.Code != 0 {
					t.Errorf("%d: %+v", i, got)
				}
				if got := git.Try("push", "-q", "origin", fmt.Sprintf("HEAD:refs/heads/own-%d", (i+1)%crowd)); got.Code != 1 {
					t.Errorf("%d pushes to another's branch: %+v", i, got)
				}
			}
			if got := git.Try("fetch", "-q", "origin"); got.Code != 0 {
				t.Errorf("%d: %+v", i, got)
			}
			if seen := git.Run("branch", "-r", "--format=%(refname:lstrip=3)"); seen != fmt.Sprintf("HEAD\nmain\nown-%d", i) {
				t.Errorf("%d sees %q", i, seen)
			}
		})
	}
	all.Wait()
	for i, id := range ids {
		if !strings.Contains(r.Refs(), fmt.Sprintf("refs/heads/own-%d %s", i, id)) {
			t.Errorf("%d has not arrived", i)
		}
	}
	r.Run("fsck", "--full", "--strict")
}

// TestInterrupted: who pushes is killed half way, the server breaks off, the
// server does not answer: nothing is left, and the next time works.
func TestInterrupted(t *testing.T) {
	broken := true
	var mu sync.Mutex
	breaks := func(then func(http.Handler) http.Handler) func(http.Handler) http.Handler {
		return func(git http.Handler) http.Handler {
			faulty := then(git)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				now := broken
				mu.Unlock()
				if now {
					faulty.ServeHTTP(w, r)
				} else {
					git.ServeHTTP(w, r)
				}
			})
		}
	}
	waiting := make(chan struct{})
	for name, fault := range map[string]func(http.Handler) http.Handler{
		"fetching":  gittest.Break("git-upload-pack", 2000),
		"listing":   gittest.Break("info/refs", 100),
		"reporting": gittest.Break("git-receive-pack", 10),
		"refusing": gittest.Answer("git-receive-pack",
			func(w http.ResponseWriter, r *http.Request) { http.Error(w, "out of order", http.StatusTeapot) }),
		"killed": gittest.Hold("git-receive-pack", waiting, nil),
	} {
		t.Run(name, func(t *testing.T) {
			mu.Lock()
			broken = false
			mu.Unlock()
			o := account
			o.Wrap = breaks(fault)
			l := newLab(t, o)
			r := l.server.Create("repo.git")
			git, _ := l.client("box", l.policy("- {remote: REPO, push: own}\n"))
			git.Run("clone", "-q", l.remote("repo.git"), "a")
			r.Run("update-ref", "refs/heads/main", r.Branch("new", "main"))
			git = git.In("a")
			git.Commit("work", "work", large(500_000))
			mu.Lock()
			broken = true
			mu.Unlock()
			switch name {
			case "killed":
				cmd := exec.Command("git", "push", "-q", "origin", "HEAD:refs/heads/own")
				cmd.Dir, cmd.Env = git.Dir, git.Env
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				<-waiting
				cmd.Process.Kill()
				cmd.Wait()
			case "fetching", "listing":
				if got := git.Try("fetch", "-q", "origin"); name == "listing" && got.Code == 0 {
					t.Errorf("%+v", got)
				}
			default:
				if got := git.Try("push", "-q", "origin", "HEAD:refs/heads/own"); got.Code == 0 {
					t.Errorf("%+v", got)
				}
			}
			mu.Lock()
			broken = false
			mu.Unlock()
			if got := git.Try("fetch", "-q", "origin"); got.Code != 0 {
				t.Errorf("fetch afterwards: %+v", got)
			}
			if got := git.Try("push", "-q", "origin", "HEAD:refs/heads/own"); got.Code != 0 {
				t.Errorf("push afterwards: %+v\n%s", got, l.log)
			}
			r.Run("fsck", "--full", "--strict")
			if left, err := filepath.Glob(l.path(home) + "/gateway/pushes/*"); err != nil || len(left) > 0 {
				t.Errorf("left behind: %q, %v", left, err)
			}
		})
	}
}

// TestAccounts: the credential is the gateway's to set, whatever the client sends; without one, what the client has
// counts, and a server's redirects lead nowhere else.
func TestAccounts(t *testing.T) {
	o := account
	var l *lab
	o.Wrap = func(git http.Handler) http.Handler {
		moved := gittest.Redirect("/moved.git", func() string { return l.remote("repo.git") }, http.StatusMovedPermanently)
		away := gittest.Redirect("/away.git", func() string { return l.remote("other.git") }, http.StatusFound)
		return moved(away(git))
	}
	l = newLab(t, o)
	l.server.Create("repo.git")
	l.server.Create("other.git")
	both := l.policy("- {remote: REPO, push: own}\n") + "- remote: " + l.remote("moved.git") + "\n- remote: " +
		l.remote("away.git") + "\n"
	git, _ := l.client("box", both)
	if got := git.Try("clone", "-q", strings.Replace(l.remote("repo.git"), "https://", "https://somebody:else@", 1),
		"a"); got.Code != 0 {
		t.Errorf("with another account: %+v", got)
	}
	if got := git.Try("clone", "-q", l.remote("moved.git"), "b"); got.Code != 0 {
		t.Errorf("moved: %+v", got)
	}
	if got := git.Try("clone", "-q", l.remote("away.git"), "c"); got.Code == 0 || !strings.Contains(got.Stderr, "403") {
		t.Errorf("moved to what it must not have: %+v", got)
	}
	for _, r := range l.server.Received() {
		if got := r.Header.Get("Authorization"); got != "Basic cm9ib3Q6"+"Y2FuYXJ5LTJmNmM5ZDgxZTdiMzRhNTA=" ||
			strings.Contains(r.Path, "other") {
			t.Errorf("%s with %q", r, got)
		}
	}
	l.server.Forget()
	bare, _ := l.clientWith("bare", both, nil)
	if got := bare.Try("clone", "-q", l.remote("repo.git"), "a"); got.Code != 128 ||
		!strings.Contains(got.Stderr, "terminal prompts disabled") {
		t.Errorf("without any: %+v", got)
	}
	if got := bare.Try("clone", "-q", strings.Replace(l.remote("repo.git"), "https://", "https://robot:"+password+"@", 1),
		"a"); got.Code != 0 {
		t.Errorf("with its own: %+v", got)
	}
	bare = bare.In("a")
	bare.Commit("work", "work", "1")
	if got := bare.Try("push", "-q", "origin", "HEAD:refs/heads/own"); got.Code != 0 {
		t.Errorf("push with its own: %+v\n%s", got, l.log)
	}
}

// TestAsked: what the policy asks about waits for somebody's word.
func TestAsked(t *testing.T) {
	l := newLab(t, account)
	r := l.server.Create("repo.git")
	git, _ := l.client("box", l.policy("- {remote: REPO, push: own, force: ask}\n"))
	git.Run("clone", "-q", l.remote("repo.git"), "a")
	git = git.In("a")
	git.Commit("work", "work", "1")
	git.Run("push", "-q", "origin", "HEAD:refs/heads/own")
	git.Run("commit", "-q", "--amend", "-m", "amended")
	for _, word := range []string{"--deny", ""} {
		done := make(chan gittest.Result)
		go func() { done <- git.Try("push", "-q", "-f", "origin", "HEAD:refs/heads/own") }()
		id := l.waits()
		l.cove(strings.Fields("approve " + id + " --scope once " + word)...)
		got := <-done
		if word == "" && got.Code != 0 || word != "" && (got.Code != 1 || !strings.Contains(got.Stderr, "denied")) {
			t.Errorf("%q: %+v", word, got)
		}
	}
	if !strings.Contains(r.Refs(), git.Run("rev-parse", "HEAD")) {
		t.Error("it has not arrived")
	}
}
