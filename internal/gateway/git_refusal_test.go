package gateway

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/git/gittest"
	"github.com/cove-sandbox/cove/internal/git/pktline"
)

// refusingServer answers like git servers that refuse in packets ERR, at one place.
type refusingServer struct {
	at      string // first, list, refs, fetch or push
	message string
}

const listedID = "1111111111111111111111111111111111111111"

func (s refusingServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	p := pktline.NewWriter(w)
	service, two := r.URL.Query().Get("service"), r.Header.Get("Git-Protocol") == "version=2"
	if service != "" {
		w.Header().Set("Content-Type", "application/x-"+service+"-advertisement")
	} else {
		w.Header().Set("Content-Type", "application/x-"+filepath.Base(r.URL.Path)+"-result")
	}
	refuses := func(at string) bool {
		if s.at == at {
			p.Text("ERR %s", s.message)
		}
		return s.at == at
	}
	push := strings.HasSuffix(r.URL.Path, "/git-receive-pack") || service == "git-receive-pack"
	switch {
	case service != "":
		if refuses("first") {
			return
		}
		p.Text("# service=%s", service)
		p.Flush()
		switch {
		case refuses("list"):
		case two && !push:
			p.Text("version 2")
			p.Text("ls-refs")
			p.Text("fetch")
			p.Flush()
		case push:
			p.Text("%s refs/heads/own/x\x00report-status delete-refs side-band-64k", listedID)
			p.Flush()
		default:
			p.Text("%s HEAD\x00symref=HEAD:refs/heads/main side-band-64k", listedID)
			p.Text("%s refs/heads/main", listedID)
			p.Flush()
		}
	case push:
		refuses("push")
	case strings.Contains(string(body), "command=ls-refs"):
		if !refuses("refs") {
			p.Text("%s HEAD symref-target:refs/heads/main", listedID)
			p.Text("%s refs/heads/main", listedID)
			p.Flush()
		}
	default:
		refuses("fetch")
	}
}

// TestGitServerRefuses: git shows the message of a packet ERR, in each version of the protocol and wherever a server
// sends it, as one bounded line without control characters; the record has it as the reason.
func TestGitServerRefuses(t *testing.T) {
	long := "account blocked: \x1b[31mask\u202e\n the owner " + strings.Repeat("x", 5000)
	const says = "account blocked: ?[31mask? the owner xxx"
	for _, x := range []struct{ at, version, git string }{
		{"first", "0", "ls-remote"}, {"first", "2", "ls-remote"}, {"first", "0", "push"},
		{"list", "0", "ls-remote"}, {"list", "2", "ls-remote"}, {"list", "2", "fetch"}, {"list", "0", "push"},
		{"refs", "2", "ls-remote"}, {"fetch", "0", "fetch"}, {"fetch", "2", "fetch"}, {"push", "0", "push"},
	} {
		t.Run(x.at+" "+x.version+" "+x.git, func(t *testing.T) {
			o := newOrigin(t, refusingServer{x.at, long}, `rules: [{hosts: example.com}]
git: [{remote: https://example.com/o/r, push: own/**, delete: allow}]`)
			dir := t.TempDir()
			git := gittest.NewGit(t, dir, "GIT_SSL_CAINFO="+o.ca, "HTTPS_PROXY="+o.proxy)
			git.Run("init", "-q", ".")
			args := []string{"-c", "protocol.version=" + x.version, x.git, "https://example.com/o/r"}
			if x.git == "push" {
				args = append(args, ":refs/heads/own/x")
			}
			got := git.Try(args...)
			if got.Code == 0 || !strings.Contains(got.Stderr, "remote error: "+says) || len(got.Stderr) > 2000 {
				t.Errorf("git says %d: %.300q, %d bytes", got.Code, got.Stderr, len(got.Stderr))
			}
			taken := o.decisions()
			for _, d := range taken {
				if d.Verdict == decision.Allow && strings.HasPrefix(d.Reason, "the git server says: "+says) {
					return
				}
			}
			t.Errorf("recorded: %v", fmt.Sprint(taken))
		})
	}
}

// TestPushCannotBeJudged: git shows why a push is not passed on that the gateway cannot look into.
func TestPushCannotBeJudged(t *testing.T) {
	o := newOrigin(t, refusingServer{}, `rules: [{hosts: example.com}]
git: [{remote: https://example.com/o/r, push: own/**}]`)
	git := gittest.NewGit(t, t.TempDir(), "GIT_SSL_CAINFO="+o.ca, "HTTPS_PROXY="+o.proxy)
	git.Run("init", "-q", ".")
	git.Commit("work", "file", "1")
	got := git.Try("push", "https://example.com/o/r", "HEAD:refs/heads/own/y")
	const says = "the push cannot be looked into"
	for _, want := range []string{"remote: Cove does not pass this push on (rule: gateway: git): " + says,
		"remote:   install git", "! [remote rejected] HEAD -> own/y (" + says + ")"} {
		if got.Code == 0 || !strings.Contains(got.Stderr, want) {
			t.Errorf("git says %d: %s\nand not %q", got.Code, got.Stderr, want)
		}
	}
	if taken := o.decisions(); !slices.ContainsFunc(taken, func(d decision.Decision) bool {
		return d.Verdict == decision.Deny && d.Reason == says
	}) {
		t.Errorf("recorded: %v", fmt.Sprint(taken))
	}
}
