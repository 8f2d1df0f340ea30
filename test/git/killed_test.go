//go:build linux

package git

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/internal/git/gittest"
	"github.com/cove-sandbox/cove/internal/instance"
)

// TestKilled: many push to one branch while the server, or the gateway, is killed again and again in the middle of it.
// What was acknowledged stays, nothing is there that nobody has pushed, and pushing goes on.
func TestKilled(t *testing.T) {
	times := 3
	if os.Getenv("COVE_TEST_LONG") != "" {
		times = 50
	}
	for name, kill := range map[string]func(*rush){
		"the server":  (*rush).killServer,
		"the gateway": (*rush).killGateway,
	} {
		t.Run(name, func(t *testing.T) {
			arrived := make(chan struct{})
			o := account
			o.Wrap = func(git http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if strings.HasSuffix(r.URL.Path, "/git-receive-pack") {
						select {
						case arrived <- struct{}{}:
						default:
						}
					}
					git.ServeHTTP(w, r)
				})
			}
			u := &rush{lab: newLab(t, o), began: time.Now(), refused: map[string]bool{}}
			u.repo = u.server.Create("repo.git")
			u.base = u.repo.Branch("shared", "main")
			const crowd = 20
			var gits [crowd]gittest.Git
			for i := range gits {
				gits[i] = u.join(fmt.Sprintf("box%d", i))
			}
			end := make(chan struct{})
			var all sync.WaitGroup
			for i, git := range gits {
				all.Go(func() { u.work(git, i, end) })
			}
			for range times {
				for range 1 + rand.N(3) {
					select {
					case <-arrived:
					case <-time.After(2 * time.Minute):
						t.Errorf("nobody pushes any more: %s", u.log)
					}
				}
				time.Sleep(rand.N(50 * time.Millisecond)) // sleep: about what git takes for a push
				kill(u)
			}
			close(end)
			all.Wait()
			u.check()
			u.swept()
		})
	}
}

// rush is many who push to one branch, and what they have seen of it.
type rush struct {
	*lab
	repo  *gittest.Repository
	base  string // what the branch was at before
	began time.Time
	locks int // that gits which were killed have left

	mu      sync.Mutex
	seen    []sight
	refused map[string]bool // commits that the branch is never at
}

// sight is an operation on a commit.
type sight struct {
	operation
	commit string
}

// join makes one of them.
func (u *rush) join(name string) gittest.Git {
	git, _ := u.client(name, u.policy("- {remote: REPO, push: shared}\n"))
	git.Run("init", "-q")
	git.Run("remote", "add", "origin", u.remote("repo.git"))
	return git
}

// work pushes one commit after the other, on top of what is there.
func (u *rush) work(git gittest.Git, who int, end <-chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-end:
			return
		default:
		}
		u.push(git, fmt.Sprintf("%d of %d", n, who))
	}
}

// push fetches the branch and pushes a commit on top of it, and reports whether that was acknowledged.
func (u *rush) push(git gittest.Git, what string) bool {
	begun := time.Since(u.began)
	if got := git.Try("fetch", "-q", "origin", "shared"); got.Code != 0 {
		return false
	}
	at := git.Run("rev-parse", "FETCH_HEAD")
	u.note(sight{operation{name: "the fetch before " + what, begun: begun, ended: time.Since(u.began)}, at}, false)
	git.Run("reset", "-q", "--hard", at)
	commit := git.Commit(what, "file", what)
	begun = time.Since(u.began)
	got := git.Try("push", "--porcelain", "origin", commit+":refs/heads/shared")
	s := sight{operation{name: what, push: true, begun: begun, ended: time.Since(u.began)}, commit}
	refused := strings.Contains(got.Stdout, "\n!\t") && strings.Contains(got.Stdout, "rejected]")
	if got.Code != 0 {
		s.ended = unknown
	}
	u.note(s, refused)
	return got.Code == 0
}

func (u *rush) note(s sight, refused bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if refused {
		u.refused[s.commit] = true
	} else {
		u.seen = append(u.seen, s)
	}
}

// killServer kills the server and starts it again. Locks of a git that was
// killed stay, and git knows no better; services remove them when they start.
func (u *rush) killServer() {
	u.server.Kill()
	for _, lock := range u.lockFiles() {
		u.locks++
		if err := os.Remove(lock); err != nil {
			u.t.Error(err)
		}
	}
	u.server.Revive()
}

func (u *rush) killGateway() {
	u.kill()
	u.start()
}

// lockFiles are those of the repository.
func (u *rush) lockFiles() (all []string) {
	filepath.WalkDir(u.repo.Dir, func(path string, _ fs.DirEntry, _ error) error { // what goes meanwhile is not there
		if strings.HasSuffix(path, ".lock") {
			all = append(all, path)
		}
		return nil
	})
	return all
}

// check compares what was seen with what is there, once nobody pushes any more.
func (u *rush) check() {
	t := u.t
	last := u.join("last")
	for n, deadline := 0, time.Now().Add(time.Minute); !u.push(last, fmt.Sprint("the last, ", n)); n++ {
		if time.Now().After(deadline) {
			t.Fatalf("no push succeeds any more: %+v\n%q\n%s", last.Try("push", "origin", "HEAD:refs/heads/shared"),
				u.lockFiles(), u.log)
		}
	}
	u.repo.Run("fsck", "--full", "--strict")
	if left := u.lockFiles(); len(left) > 0 {
		t.Errorf("there are locks: %q", left)
	}
	place := map[string]int{}
	for i, commit := range strings.Fields(u.repo.Run("rev-list", "--reverse", u.base+"^..shared")) {
		place[commit] = i
		if u.refused[commit] {
			t.Errorf("%s was refused, and is there", commit)
		}
	}
	known := map[string]bool{u.base: true}
	var all []operation
	acknowledged, lost := 0, 0
	for _, s := range u.seen {
		known[s.commit] = known[s.commit] || s.push
		at, there := place[s.commit]
		if s.place = at; there {
			all = append(all, s.operation)
		}
		switch {
		case s.ended == unknown:
			lost++
		case !there:
			t.Errorf("%s is not there any more: %s", s.name, s.commit)
		case s.push:
			acknowledged++
		}
	}
	for commit := range place {
		if !known[commit] {
			t.Errorf("nobody has pushed %s", commit)
		}
	}
	for _, wrong := range linear(all) {
		t.Error(wrong)
	}
	t.Logf("%d commits, %d pushes acknowledged, %d refused, %d of which nothing was heard; %d locks were left",
		len(place)-1, acknowledged, len(u.refused), lost, u.locks)
}

// swept sees that gateways which were killed have left no control groups.
func (u *rush) swept() {
	ids, err := instance.List(u.path("run"))
	if err != nil {
		u.t.Error(err)
	}
	for _, id := range ids {
		if instance.Alive(u.path("run"), id) {
			continue
		}
		filepath.WalkDir("/sys/fs/cgroup", func(path string, _ fs.DirEntry, _ error) error { // others come and go
			if strings.Contains(filepath.Base(path), "."+string(id)+".") {
				u.t.Errorf("there is %s", path)
			}
			return nil
		})
	}
}
