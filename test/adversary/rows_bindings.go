package adversary

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cove-sandbox/cove/test/adversary/lab"
	"github.com/cove-sandbox/cove/test/adversary/outcome"
)

// bound is a request to where a credential belongs, by each entry.
func bound(host string) []entry { return entries("https", host, 443) }

func elsewhere(c *trial) {
	value := c.secret("COVE_ROWS_KEY")
	b := c.outward(withKey, "key")
	for _, code := range []int{301, 302, 303, 307, 308} {
		c.internet().Page("/bound/redirect", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "https://"+r.URL.RawQuery)
			w.WriteHeader(code)
		})
		for _, to := range []string{"allowed.lab/bound/x", "key.lab:8443/bound/x", "key.lab/free/x", "also.lab/bound/x",
			"evil.lab/bound/x"} {
			for _, e := range bound("key.lab") {
				c.internet().Forget()
				if a := b.get(e, "key.lab", "/bound/redirect?"+to); a.Count != int64(code) || len(c.internet().Requests()) != 1 {
					c.Errorf("HOLE or not tested: %s: %s, %v", e.name, a, c.internet().Requests())
				}
			}
		}
	}
	// The next hop, as a client makes it: with the placeholder that it has.
	placeholder := b.route.Env()["LAB_TOKEN"]
	for _, next := range []struct {
		scheme, host string
		port         int
		path         string
	}{{"https", "allowed.lab", 443, "/bound/x"}, {"https", "key.lab", 8443, "/bound/x"},
		{"https", "key.lab", 443, "/free/x"}, {"https", "also.lab", 443, "/bound/x"}, {"http", "key.lab", 80, "/bound/x"},
		{"http", "key.lab", 443, "/bound/x"}, {"https", "evil.lab", 443, "/bound/x"}} {
		for _, e := range entries(next.scheme, next.host, next.port) {
			c.internet().Forget()
			b.get(e, next.host+":"+strconv.Itoa(next.port), next.path, "Authorization: Bearer "+placeholder)
			for _, r := range c.internet().Requests() {
				if betrays(fmt.Sprint(r), value) != "" {
					c.Errorf("HOLE: %s: the value is in a request to %s at %s", e.name, r, r.At)
				}
			}
			for _, p := range c.internet().Packets() {
				if a := p.To.Addr(); a == lab.Evil4 || a == lab.Evil6 {
					c.Errorf("HOLE: %s: a packet to %s", e.name, p.To)
				}
			}
		}
	}
	for _, e := range bound("second.lab") { // whose first address does not answer
		c.internet().Forget()
		if a := b.get(e, "second.lab", "/bound/x"); !a.ok() {
			c.Errorf("not tested: %s: %s", e.name, a)
		}
		if seen := c.internet().Requests(); len(seen) != 1 || seen[0].Header.Get("Authorization") != "Bearer "+value ||
			seen[0].Name != "second.lab" {
			c.Errorf("HOLE or not tested: %s: %v", e.name, seen)
		}
	}
}

func oddSpellings(c *trial) {
	value := c.secret("COVE_ROWS_KEY")
	b := c.outward(withKey, "key")
	given, withheld := 0, 0
	for _, e := range bound("key.lab") {
		for _, host := range []string{"key.lab", "KEY.lab", "key.lab.", "key.lab:443", "Key.Lab.:443", "user@key.lab",
			"key.lab:8443", "key.lab:0443", "key.lab@evil.lab", "xn--key.lab", "key。lab"} {
			for _, path := range []string{"/bound/x", "/bound/../free/x", "/bound/%2e%2e/free/x", "/bound/..%2ffree/x",
				"/bound/%2e%2e%2ffree/x", "/bound/%252e%252e/free/x", "/free/../bound/x", "//bound/x", "/bound//x",
				"/./bound/x", "/%62ound/x", "/bound/x;/../../free", "/bound\\..\\free", "/Bound/x", "/boundx", "/bound%2fx",
				"/bound/..;/free/x", "/bound/%5c../free", "/free/x", "/"} {
				c.internet().Forget()
				a := b.say(e, e.keep("GET", path, host, "Connection: close"))
				for _, r := range c.internet().Requests() {
					has := betrays(fmt.Sprint(r.Header, r.Target), value) != ""
					meant := strings.HasPrefix(r.Target, "/bound/") && !strings.Contains(r.Target, "..") &&
						!strings.Contains(strings.ToLower(r.Target), "%2e") && r.Host == "key.lab"
					if has && !meant {
						c.Errorf("HOLE: %s: %s, %s: the value is on %s", e.name, host, path, r)
					}
					if has {
						given++
					} else {
						withheld++
					}
				}
				if betrays(a.text, value) != "" {
					c.Errorf("HOLE: %s: %s, %s: %s", e.name, host, path, a)
				}
			}
		}
	}
	if given == 0 || withheld == 0 {
		c.Errorf("not tested: on %d requests there was the value, on %d not", given, withheld)
	}
}

func conflicts(c *trial) {
	key, twin := c.secret("COVE_ROWS_KEY"), c.secret("COVE_ROWS_TWIN")
	both := c.outward(withKey, "key", "twin")
	c.internet().Forget()
	for _, e := range bound("key.lab") {
		both.stays("two credentials by "+e.name, both.get(e, "key.lab", "/bound/x"))
	}
	both.quiet("key.lab")
	if b, err := c.tryOutward("rules:\n  - {hosts: key.lab, ports: 443, pass_through: true}\n", "key"); err == nil {
		c.Error("HOLE: a policy that passes TLS through is taken with a credential for it")
		b.route.Close()
	}
	denied := c.outward(
		"rules:\n  - hosts: [key.lab, allowed.lab]\n  - {hosts: key.lab, paths: /bound/**, action: deny}\n", "key")
	c.internet().Forget()
	for _, e := range bound("key.lab") {
		denied.stays("a host that policy denies by "+e.name, denied.get(e, "key.lab", "/bound/x"))
	}
	denied.quiet("key.lab")
	plain := c.outward(withKey, "key")
	for _, e := range entries("http", "key.lab", 80) {
		c.internet().Forget()
		plain.get(e, "key.lab", "/bound/x")
		if seen := c.internet().Requests(); len(seen) != 1 || seen[0].Header.Get("Authorization") != "" {
			c.Errorf("HOLE or not tested: without TLS by %s: %v", e.name, seen)
		}
	}
	if b, err := c.tryOutward(withKey, "nobody"); err == nil {
		c.Error("a credential that is not described is given")
		b.route.Close()
	}
	for _, d := range both.decisions() {
		if text := fmt.Sprintf("%+v", d); betrays(text, key) != "" || betrays(text, twin) != "" {
			c.Errorf("HOLE: %s", text)
		}
	}
}

func fronted(c *trial) {
	value := c.secret("COVE_ROWS_KEY")
	b := c.outward(withKey, "key")
	for _, at := range []string{lab.Evil4.String() + ":443", "[" + lab.Evil6.String() + "]:443", "10.9.9.9:443",
		"169.254.169.254:443", "203.0.113.5:443"} {
		c.internet().Forget()
		a := b.talk(outcome.Talk{By: outcome.Direct, At: at, TLS: true, Name: "key.lab",
			Send: "GET /bound/x HTTP/1.1\r\nHost: key.lab\r\nConnection: close\r\n\r\n"})
		seen := c.internet().Requests()
		if !a.ok() || len(seen) != 1 || seen[0].At.Addr() != lab.Web4 && seen[0].At.Addr() != lab.Web6 ||
			seen[0].Header.Get("Authorization") != "Bearer "+value {
			c.Errorf("HOLE or not tested: key.lab at %s: %s, %v", at, a, seen)
		}
	}
	c.internet().Forget()
	for _, e := range everyEntry("evil.lab") { // the credential's host over a connection to another
		b.get(e, "key.lab", "/bound/x")
		for _, r := range c.internet().Requests() { // what leads to key.lab itself may
			if r.Host != "key.lab" || r.At.Addr() == lab.Evil4 || r.At.Addr() == lab.Evil6 {
				c.Errorf("HOLE: %s: %s got %v", e.name, r.At, r)
			}
		}
	}
}

func rotated(c *trial) {
	old := c.secret("COVE_ROWS_KEY")
	b := c.outward(withKey, "key")
	const crew = 50
	waiting, release := make(chan struct{}, crew), make(chan struct{})
	c.internet().Page("/bound/wait", func(w http.ResponseWriter, r *http.Request) {
		waiting <- struct{}{}
		<-release
		io.WriteString(w, "you have "+r.Header.Get("Authorization")) // of which the gateway must still know
	})
	t := outcome.Talk{By: outcome.Direct, To: "key.lab:443", TLS: true, Name: "key.lab",
		Send: outcome.Quoted("GET /bound/wait HTTP/1.1\r\nHost: key.lab\r\nConnection: close\r\n\r\n")}
	c.internet().Forget()
	p := b.start(c, spec(fmt.Sprintf("crew %d %s", crew, strings.TrimPrefix(t.Line(), "talk "))))
	if p == nil {
		c.FailNow()
	}
	for range crew {
		select {
		case <-waiting:
		case <-p.Exited():
			c.Fatalf("not tested: %+v", p.wait(patience))
		}
	}
	fresh := c.secret("COVE_ROWS_KEY") // it is changed now
	for _, e := range bound("key.lab") {
		b.get(e, "key.lab", "/bound/after")
	}
	close(release)
	r := p.wait(patience)
	if r.result.Count != crew {
		c.Errorf("not tested: %d of %d were answered: %s", r.result.Count, crew, say(r.result))
	}
	if how := betrays(r.stdout, old); how != "" || betrays(r.stdout, fresh) != "" {
		c.Errorf("HOLE: a value came back, %s", how)
	}
	for _, request := range c.internet().Requests() {
		want := "Bearer " + old
		if strings.HasPrefix(request.Target, "/bound/after") {
			want = "Bearer " + fresh
		}
		if got := request.Header["Authorization"]; !slices.Equal(got, []string{want}) {
			c.Errorf("HOLE: %s has %q", request, got)
		}
	}
	os.Unsetenv("COVE_ROWS_KEY") // until the row is over
	c.internet().Forget()
	for _, e := range bound("key.lab") {
		b.stays("without a value by "+e.name, b.get(e, "key.lab", "/bound/x"))
	}
	b.quiet("key.lab")
	last := c.secret("COVE_ROWS_KEY")
	c.internet().Forget()
	b.get(bound("key.lab")[0], "key.lab", "/bound/x")
	if seen := c.internet().Requests(); len(seen) != 1 || seen[0].Header.Get("Authorization") != "Bearer "+last {
		c.Errorf("not tested: with a value again: %v", seen)
	}
}

func presets(c *trial) {
	for _, one := range []struct {
		name, host, variable string
		meant                [2]string
		closed               []string
	}{
		{"anthropic", "api.anthropic.com", "ANTHROPIC_API_KEY", [2]string{"POST", "/v1/messages"},
			[]string{"GET /v1/files", "POST /v1/files", "GET /v1/files/f/content", "GET /v1/organizations/api_keys",
				"POST /v1/organizations/invites", "GET /v1/organizations/me", "POST /v1/messages/batches",
				"GET /v1/messages/batches", "GET /v1/messages/batches/b/results", "POST /v1/skills", "DELETE /v1/models/m",
				"POST /v1/environments", "GET /v1/messages", "POST /v1/complete"}},
		{"openai", "api.openai.com", "OPENAI_API_KEY", [2]string{"POST", "/v1/responses"},
			[]string{"GET /v1/files", "POST /v1/files", "GET /v1/files/f/content", "POST /v1/batches", "GET /v1/batches",
				"GET /v1/organization/admin_api_keys", "POST /v1/organization/projects", "GET /v1/organization/usage/completions",
				"POST /v1/fine_tuning/jobs", "GET /v1/fine_tuning/jobs", "POST /v1/uploads",
				"GET /v1/vector_stores", "POST /v1/assistants", "GET /v1/threads/t/messages", "POST /v1/evals",
				"DELETE /v1/models/m", "DELETE /v1/responses/r", "GET /v1/chat/completions", "POST /v1/realtime/client_secrets",
				"POST /v1/containers", "GET /v1/webhooks"}},
		{"openrouter", "openrouter.ai", "OPENROUTER_API_KEY", [2]string{"POST", "/api/v1/chat/completions"},
			[]string{"GET /api/v1/key", "GET /api/v1/keys", "POST /api/v1/keys", "GET /api/v1/credits",
				"POST /api/v1/auth/keys", "GET /api/v1/generation", "GET /api/v1/activity"}},
	} {
		value := c.secret(one.variable)
		c.internet().Lead(one.host)
		narrow, wide := c.outward("presets: ["+one.name+"]\n", one.name), c.outward(allow(one.host), one.name)
		for _, e := range bound(one.host) {
			for _, line := range one.closed {
				method, path, _ := strings.Cut(line, " ")
				c.internet().Forget()
				narrow.stays(one.name+": "+line+" by "+e.name, narrow.say(e, e.request(method, one.host, path)))
				narrow.quiet(one.host)
				wide.say(e, e.request(method, one.host, path)) // where policy allows it, the key is not set
				for _, r := range c.internet().Requests() {
					if betrays(fmt.Sprint(r.Header, r.Target), value) != "" {
						c.Errorf("HOLE: %s: the key is set on %s", one.name, r)
					}
				}
			}
			c.internet().Forget()
			narrow.say(e, e.request(one.meant[0], one.host, one.meant[1], "Content-Length: 2",
				"Content-Type: application/json")+"{}")
			if seen := c.internet().Requests(); len(seen) != 1 || betrays(fmt.Sprint(seen[0].Header), value) == "" {
				c.Errorf("not tested: %s by %s: %v", one.name, e.name, seen)
			}
		}
	}
}

func foreignPlaceholder(c *trial) {
	value := c.secret("COVE_ROWS_KEY")
	owner, other := c.outward(withKey, "key"), c.outward(withKey)
	placeholder := owner.route.Env()["LAB_TOKEN"]
	if other.route.Env()["LAB_TOKEN"] != "" || placeholder == "" {
		c.Errorf("not tested: placeholders are %q and %q", placeholder, other.route.Env()["LAB_TOKEN"])
	}
	for _, e := range bound("key.lab") {
		c.internet().Forget()
		other.get(e, "key.lab", "/bound/x", "Authorization: Bearer "+placeholder, "Proxy-Authorization: Bearer "+placeholder)
		seen := c.internet().Requests()
		if len(seen) != 1 || betrays(fmt.Sprint(seen[0].Header, seen[0].Target), value) != "" ||
			seen[0].Header.Get("Authorization") != "Bearer "+placeholder {
			c.Errorf("HOLE or not tested: %s: %v", e.name, seen)
		}
		c.internet().Forget()
		owner.get(e, "key.lab", "/bound/x", "Authorization: Bearer "+placeholder)
		if seen := c.internet().Requests(); len(seen) != 1 || seen[0].Header.Get("Authorization") != "Bearer "+value {
			c.Errorf("not tested: %s, its owner: %v", e.name, seen)
		}
	}
	second := c.outward(withKey, "key")
	if second.route.Env()["LAB_TOKEN"] == placeholder {
		c.Error("two sandboxes have one placeholder")
	}
}
