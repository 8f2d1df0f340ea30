//go:build linux

package git

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/internal/git/gittest"
)

// TestPush: a sandbox without any credential clones, pushes its branch, and nothing else; it is told why.
func TestPush(t *testing.T) {
	for name, filter := range map[string]string{"a server with filters": "true", "a plain server": "false"} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, account)
			r := l.server.Create("repo.git")
			r.Run("config", "uploadpack.allowFilter", filter)
			testPush(t, l, r)
		})
	}
}

// TestPushWithDocker: pushes are judged in containers where the engine is Docker.
func TestPushWithDocker(t *testing.T) {
	if os.Getenv("DOCKER_HOST") == "" {
		t.Skip("needs a Docker daemon of its own: DOCKER_HOST=$(scripts/start-docker.sh)")
	}
	l := newLabOn(t, "docker", account)
	began := time.Now()
	testPush(t, l, l.server.Create("repo.git"))
	if n := containersSince(t, began); n < 2 {
		t.Errorf("the Docker daemon made %d containers, want one for each push that was looked into", n)
	}
}

// containersSince counts the containers that the Docker daemon has made since a time.
func containersSince(t *testing.T, since time.Time) int {
	t.Helper()
	socket := strings.TrimPrefix(os.Getenv("DOCKER_HOST"), "unix://")
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context,
		_, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	defer client.CloseIdleConnections()
	query := url.Values{
		"since":   {strconv.FormatInt(since.Unix(), 10)},
		"until":   {strconv.FormatInt(time.Now().Unix(), 10)},
		"filters": {`{"type":["container"],"event":["create"]}`},
	}
	resp, err := client.Get("http://docker/events?" + query.Encode())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	events, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v: %s", resp.Status, err, events)
	}
	return bytes.Count(events, []byte(`"Action":"create"`))
}

func testPush(t *testing.T, l *lab, r *gittest.Repository) {
	other := r.Branch("other", "main")
	git, _ := l.client("box", l.policy("- {remote: REPO, push: own}\n"))
	if got := git.Try("clone", "-q", l.remote("repo.git"), "a"); got.Code != 0 {
		t.Fatalf("%+v\n%s", got, l.log)
	}
	git = git.In("a")
	if branches := git.Run("branch", "-r", "--format=%(refname:short)"); branches != "origin/HEAD\norigin/main" {
		t.Errorf("it sees %q", branches)
	}
	if got := git.Try("fetch", "-q", "origin", other); got.Code == 0 {
		t.Errorf("a hidden commit: %+v", got)
	}
	first := git.Commit("work", "work", "1\n")
	if got := git.Try("push", "origin", "HEAD:refs/heads/own"); got.Code != 0 ||
		!strings.Contains(got.Stderr, "new branch") {
		t.Errorf("push: %+v\n%s", got, l.log)
	}
	second := git.Commit("more", "work", "2\n")
	if got := git.Try("push", "origin", "HEAD:refs/heads/own"); got.Code != 0 || !strings.Contains(got.Stderr, first[:7]) {
		t.Errorf("update: %+v\n%s", got, l.log)
	}
	// somebody else takes it into main and goes on; the sandbox follows
	r.Run("update-ref", "refs/heads/main", r.Branch("taken", second))
	git.Run("fetch", "-q", "origin")
	for _, args := range [][]string{{"push", "-q", "origin", "origin/main:refs/heads/own"},
		{"push", "-q", "origin", "HEAD:refs/heads/own"}} {
		if got := git.Try(args...); (got.Code == 0) != (args[3] == "origin/main:refs/heads/own") {
			t.Errorf("%q: %+v", args, got)
		}
	}
	git.Run("merge", "-q", "origin/main")
	second = git.Commit("on top", "work", "3\n")
	git.Run("push", "-q", "origin", "HEAD:refs/heads/own")
	before := r.Refs()
	if !strings.Contains(before, "refs/heads/own "+second) {
		t.Errorf("%s", before)
	}
	for name, args := range map[string][]string{
		"main":     {"HEAD:refs/heads/main"},
		"another":  {"HEAD:refs/heads/other"},
		"a tag":    {"HEAD:refs/tags/v1"},
		"deletion": {":refs/heads/own"},
		"force":    {"--force", first + ":refs/heads/own"},
	} {
		got := git.Try(append([]string{"push", "origin"}, args...)...)
		if got.Code != 1 || !strings.Contains(got.Stderr, "remote: Cove refuses this push") ||
			!strings.Contains(got.Stderr, "[remote rejected]") {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if after := r.Refs(); after != before {
		t.Errorf("the server has changed:\n%s", after)
	}
}

// TestAnew: a branch that a sandbox deletes and makes anew is no way around the
// refusal of force pushes, and tags that it does not see do not come along.
func TestAnew(t *testing.T) {
	l := newLab(t, account)
	r := l.server.Create("repo.git")
	r.Run("tag", "-a", "-m", "hidden", "hidden", "main")
	git, _ := l.client("box", l.policy("- {remote: REPO, push: own, fetch: well-known, delete: allow}\n"))
	for i, version := range []string{"0", "2"} {
		clone := fmt.Sprint("a", i)
		git.Run("-c", "protocol.version="+version, "clone", "-q", l.remote("repo.git"), clone)
		if has := git.In(clone).Run("cat-file", "--batch-all-objects", "--batch-check"); !strings.Contains(has, " commit ") ||
			strings.Contains(has, " tag ") {
			t.Errorf("in version %s a tag came along: %s", version, has)
		}
	}
	git = git.In("a0")
	git.Commit("first", "work", "1")
	git.Run("push", "-q", "origin", "HEAD:refs/heads/own")
	git.Run("push", "-q", "origin", ":refs/heads/own")
	git.Run("commit", "-q", "--amend", "-m", "another")
	if got := git.Try("push", "-q", "origin", "HEAD:refs/heads/own"); got.Code != 1 ||
		!strings.Contains(got.Stderr, "force push") {
		t.Errorf("anew: %+v", got)
	}
	git.Run("reset", "-q", "--hard", "HEAD@{1}")
	id := git.Commit("on top", "work", "2")
	if got := git.Try("push", "-q", "origin", "HEAD:refs/heads/own"); got.Code != 0 ||
		!strings.Contains(r.Refs(), "refs/heads/own "+id) {
		t.Errorf("on top of what was there: %+v", got)
	}
}
