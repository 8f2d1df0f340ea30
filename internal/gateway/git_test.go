package gateway

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
)

const gitPolicy = `rules: [{hosts: [git.test, other.test]}]
git: [{remote: https://git.test/group/repo, push: own}, {remote: https://git.test/group/read}]
`

// TestGitStage: the stage judges requests that need no inspection of a pack. test/git covers the whole.
func TestGitStage(t *testing.T) {
	w := routeWith(t, Options{}, document(t, gitPolicy))
	for target, says := range map[string]string{
		"GET https://git.test/group/repo.git/info/refs?service=git-upload-pack":  "",
		"GET https://git.test/group/repo.git/info/refs?service=git-receive-pack": "",
		"GET https://git.test/group/read.git/info/refs?service=git-receive-pack": "only reads",
		"GET https://git.test/group/none.git/info/refs?service=git-upload-pack":  "has no repository git.test:443/group/none.git",
		"GET https://git.test/group/repo.git/HEAD":                               "dumb protocol",
		"GET http://git.test/group/repo.git/info/refs?service=git-upload-pack":   "over https",
		"PUT https://git.test/group/repo.git/git-receive-pack":                   "no client of git",
		"GET https://git.test/group/pulls":                                       "",
		"GET https://git.test/group/config":                                      "",
		"GET https://other.test/group/repo.git/HEAD":                             "",
		"POST https://other.test/group/repo.git/git-receive-pack":                "",
		"POST https://git.test/group/repo.git/info/lfs/locks":                    "downloaded only",
		"GET https://git.test/group/repo.git/info/lfs/objects/00":                "",
	} {
		method, url, _ := strings.Cut(target, " ")
		_, p, err := send(t, w, method, url, "")
		if err == nil {
			p.End(nil)
		}
		var refused *proxy.Refusal
		if says == "" && err != nil || says != "" && (!errors.As(err, &refused) || !strings.Contains(refused.Reason, says)) {
			t.Errorf("%s: %v", target, err)
		}
	}
	v := w.judge(policy.Request{Layer: policy.LayerConnect, Host: hostOf(t, "git.test"), Port: 443})
	if v.Action != policy.Allow || v.PassThrough {
		t.Errorf("%+v", v)
	}
	for name, offered := range map[string]bool{"git.test": false, "other.test": true} {
		if (proxyView{w}).HTTP2(hostOf(t, name)) != offered {
			t.Errorf("HTTP/2 for %s: %v", name, !offered)
		}
	}
	through := routeWith(t, Options{}, document(t,
		"rules: [{hosts: git.test, ports: [22, 443], pass_through: true}]\ngit: [{remote: https://git.test/group/repo}]"))
	for _, port := range []uint16{22, 443} {
		if v := through.judge(policy.Request{Layer: policy.LayerConnect, Host: hostOf(t, "git.test"),
			Port: port}); v.Action != policy.Deny || !strings.Contains(v.Reason, "over git is judged") {
			t.Errorf("past the judge, by port %d: %+v", port, v)
		}
	}
}

// TestGitHeaders: what is asked for is said in one way, whatever the client says.
func TestGitHeaders(t *testing.T) {
	w := routeWith(t, Options{}, document(t, gitPolicy))
	for version, want := range map[string]string{"version=2": "version=2", "version=2:version=1": "",
		"version=9": "", "": ""} {
		h := &http.Request{Method: "GET", Header: http.Header{"Git-Protocol": {version}, "Range": {"bytes=1-"},
			"If-None-Match": {"x"}, "Accept-Encoding": {"gzip"}}}
		u, err := policy.ParseURL("https://git.test/group/repo.git/info/refs?service=git-upload-pack")
		if err != nil {
			t.Fatal(err)
		}
		request, _ := http.NewRequest("GET", "https://git.test/group/repo.git/info/refs?service=git-upload-pack", nil)
		h.URL = request.URL
		l, err := w.git.enter(policy.Request{Layer: policy.LayerHTTP, Host: u.Host, Port: 443, Method: "GET",
			Path: "/group/repo.git/info/refs"}, h)
		if err != nil || l.response == nil {
			t.Fatal(err)
		}
		if h.Header.Get("Git-Protocol") != want || h.Header.Get("Range")+h.Header.Get("If-None-Match") != "" ||
			h.Header.Get("Accept-Encoding") != "identity" {
			t.Errorf("%q: %v", version, h.Header)
		}
	}
}

// TestPushWaits: a push that somebody is asked about does not become something
// else when the policy changes: no rule of requests is about it.
func TestPushWaits(t *testing.T) {
	w, _ := newTestRoute(t)
	r := requestOf(t, "allowed.test", "PUSH", "/group/repo.git/refs/heads/own")
	answer := make(chan policy.Verdict, 1)
	changed := waitsFor(w)
	go func() {
		answer <- w.ask(context.Background(), r, policy.Verdict{Action: policy.Ask, Rule: "policy.yaml:1",
			Asks: policy.Asks{Method: true, Path: true}}, true)
	}()
	<-changed
	if all := held(w); len(all) != 1 || all[0].Method != "PUSH" || all[0].Path != r.Path {
		t.Fatalf("%+v", all)
	}
	if _, err := w.Extend(document(t, "rules: [{hosts: more.test}]")); err != nil {
		t.Fatal(err)
	}
	if v := <-answer; v.Action != policy.Deny || !strings.Contains(v.Reason, "has changed") {
		t.Errorf("%+v", v)
	}
}

// waitsFor is closed when what waits changes.
func waitsFor(w *Route) <-chan struct{} {
	_, changed := w.Holds()
	return changed
}
