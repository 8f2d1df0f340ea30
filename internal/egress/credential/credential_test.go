package credential

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/redact"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// canary is the value that must never appear elsewhere.
const canary = "sk-canary-Zm9vYmFy-0123456789"

// leaks returns the form in which text contains the canary, or most of it.
func leaks(text string) string {
	for how, form := range map[string]string{"raw": canary[3:20], "hex": hex.EncodeToString([]byte(canary[3:20])),
		"bytes":          fmt.Sprint([]byte(canary[3:12]))[1:30],
		"base64":         base64.StdEncoding.EncodeToString([]byte(canary))[4:20],
		"base64, second": base64.StdEncoding.EncodeToString([]byte(" " + canary))[4:20],
		"base64, third":  base64.StdEncoding.EncodeToString([]byte("  " + canary))[4:20]} {
		if strings.Contains(text, form) {
			return how
		}
	}
	return ""
}

func noLeak(t *testing.T, what, text string) {
	t.Helper()
	if how := leaks(text); how != "" {
		t.Errorf("%s has the value (%s): %s", what, how, text)
	}
}

func parse(t testing.TB, yaml string) []Credential {
	t.Helper()
	all, err := Parse("test.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func set(t testing.TB, yaml string) *Set {
	t.Helper()
	s, err := NewSet(NewValues(clock.Real()), parse(t, yaml)...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func hostOf(t testing.TB, s string) policy.Host {
	t.Helper()
	h, err := policy.ParseHost(s)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// request returns a request as the gateway has it after policy.
func request(t testing.TB, method, rawURL string) (policy.Request, *http.Request) {
	t.Helper()
	h, err := http.NewRequestWithContext(t.Context(), method, rawURL, nil)
	if err != nil {
		t.Fatal(err)
	}
	return judged(t, h), h
}

func judged(t testing.TB, h *http.Request) policy.Request {
	t.Helper()
	defaults := map[string]uint16{"https": 443, "http": 80}
	host, port, err := policy.ParseAuthority(h.URL.Host, defaults[h.URL.Scheme])
	if err != nil {
		t.Fatal(err)
	}
	path, err := policy.CanonicalPath(h.URL.EscapedPath())
	if err != nil {
		t.Fatal(err)
	}
	return policy.Request{Layer: policy.LayerHTTP, Host: host, Port: port, Method: h.Method, Path: path}
}

const bearerTo = `
credentials:
  - name: service
    source: env:COVE_TEST_SERVICE
    variables: SERVICE_TOKEN
    to:
      - {form: bearer, hosts: api.example.com, ports: 443, methods: [GET, POST], paths: /v1/**}
`

func TestForms(t *testing.T) {
	t.Setenv("COVE_TEST_SERVICE", canary)
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("robot:"+canary))
	for form, want := range map[string][2]string{
		"form: bearer":                    {"Authorization", "Bearer " + canary},
		"form: header, header: x-api-key": {"X-Api-Key", canary},
		`form: header, header: Authorization, template: "Token token={}, v=1"`: {"Authorization",
			"Token token=" + canary + ", v=1"},
		"form: basic, user: robot":    {"Authorization", basic},
		"form: query, parameter: key": {"?", "a=1&b=%2F&key=" + canary},
	} {
		s := set(t, "credentials:\n  - {name: service, source: 'env:COVE_TEST_SERVICE', to: [{hosts: api.example.com, "+form+
			"}]}")
		r, h := request(t, "GET", "https://api.example.com/v1?a=1&b=%2F")
		names, err := s.Apply(r, h, nil)
		if err != nil || fmt.Sprint(names) != "[service]" {
			t.Errorf("%s: %v, %v", form, names, err)
		}
		if want[0] == "?" {
			if h.URL.RawQuery != want[1] || len(h.Header) != 0 {
				t.Errorf("%s: %s %v", form, h.URL.RawQuery, h.Header)
			}
		} else if got := h.Header[want[0]]; len(got) != 1 || got[0] != want[1] || len(h.Header) != 1 ||
			h.URL.RawQuery != "a=1&b=%2F" {
			t.Errorf("%s: %v, query %s", form, h.Header, h.URL.RawQuery)
		}
	}
}

// TestFormsThatDoNotFit: a value that does not fit a form is not set.
func TestFormsThatDoNotFit(t *testing.T) {
	t.Setenv("COVE_TEST_SERVICE", "a phrase of words")
	for form, want := range map[string]cove.Code{"form: basic, user: me": "", "form: bearer": cove.Unavailable,
		"form: header, header: X-Key": cove.Unavailable, "form: query, parameter: key": cove.Unavailable} {
		s := set(t, "credentials:\n  - {name: service, source: 'env:COVE_TEST_SERVICE', to: [{hosts: api.example.com, "+form+
			"}]}")
		r, h := request(t, "GET", "https://api.example.com/v1")
		h.Header.Set("Authorization", "placeholder")
		_, err := s.Apply(r, h, nil)
		if cove.ErrorCode(err) != want {
			t.Errorf("%s: %v", form, err)
		}
		if err != nil && (h.Header.Get("Authorization") != "placeholder" || strings.Contains(err.Error(), "phrase")) {
			t.Errorf("%s: %v, header %v", form, err, h.Header)
		}
	}
}

// TestBoundTo: only bound requests get a credential (C2).
func TestBoundTo(t *testing.T) {
	t.Setenv("COVE_TEST_SERVICE", canary)
	s := set(t, bearerTo)
	for target, want := range map[string]bool{
		"GET https://api.example.com/v1/things":          true,
		"POST https://api.example.com:443/v1/":           true,
		"GET https://API.example.com./v1/x":              true, // the same host
		"DELETE https://api.example.com/v1/things":       false,
		"GET https://api.example.com/v2/things":          false,
		"GET https://api.example.com/":                   false,
		"GET https://api.example.com:8443/v1/things":     false,
		"GET https://example.com/v1/things":              false,
		"GET https://evil.api.example.com/v1/things":     false,
		"GET https://api.example.com.evil.test/v1/x":     false,
		"GET https://192.0.2.1/v1/things":                false,
		"GET http://api.example.com:443/v1/things":       false, // no TLS
		"GET https://api.example.com/v1%2Fthings":        false,
		"GET https://api.example.com/v1/a%2F..%2F..%2Fx": false,
	} {
		method, rawURL, _ := strings.Cut(target, " ")
		h, err := http.NewRequestWithContext(t.Context(), method, rawURL, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := policy.CanonicalPath(h.URL.EscapedPath()); err != nil {
			continue // not a valid request
		}
		h.Header.Set("Authorization", "Bearer placeholder")
		before := fmt.Sprint(h.Header, h.URL)
		names, err := s.Apply(judged(t, h), h, nil)
		if err != nil {
			t.Errorf("%s: %v", target, err)
		}
		if got := h.Header.Get("Authorization") == "Bearer "+canary; got != want || (len(names) == 1) != want {
			t.Errorf("%s: set %v, want %v", target, got, want)
		}
		if !want && fmt.Sprint(h.Header, h.URL) != before {
			t.Errorf("%s: changed to %v %v", target, h.Header, h.URL)
		}
	}
	var none *Set
	r, h := request(t, "GET", "https://api.example.com/v1/x")
	if names, err := none.Apply(r, h, nil); len(names) != 0 || err != nil || none.Binds(r.Host, 443) ||
		none.Check(nil) != nil || len(none.Placeholders()) != 0 {
		t.Error("the nil Set has a credential")
	}
}

// TestStripThenSet: no copy that a sandbox sends is left (C2). A real origin reports the received request.
func TestStripThenSet(t *testing.T) {
	t.Setenv("COVE_TEST_SERVICE", canary)
	const mine = "mine-0123456789"
	for name, c := range map[string]struct {
		form string
		send func(*http.Request)
		keep string // must still be there
	}{
		"one": {"form: bearer", func(h *http.Request) { h.Header.Set("Authorization", mine) }, ""},
		"several": {"form: bearer", func(h *http.Request) {
			h.Header["Authorization"] = []string{mine, "Bearer " + mine, mine + ", " + mine}
		}, ""},
		"case variants": {"form: bearer", func(h *http.Request) {
			h.Header["AUTHORIZATION"], h.Header["authorization"] = []string{mine}, []string{mine}
		}, ""},
		"underscores": {"form: header, header: X-Api-Key", func(h *http.Request) {
			h.Header["X_api_KEY"] = []string{mine}
		}, ""},
		"another header": {"form: header, header: X-Api-Key", func(h *http.Request) {
			h.Header.Set("Authorization", mine)
			h.Header.Set("Api-Key", mine)
		}, ""},
		"own header": {"form: header, header: X-Company-Key", func(h *http.Request) {
			h.Header.Set("x-company-key", mine)
		}, ""},
		"query copies": {"form: header, header: X-Api-Key", func(h *http.Request) {
			h.URL.RawQuery = "a=1&x-api-key=" + mine + "&X_API_KEY=" + mine + "&api%5Fkey=" + mine + "&z"
		}, "a=1&z"},
		"query, twice": {"form: query, parameter: key", func(h *http.Request) {
			h.URL.RawQuery = "key=" + mine + "&%6bey=" + mine + "&key[]=" + mine + "&KEY=" + mine + "&a;key=" + mine + "&b=2"
		}, "b=2&key=" + canary},
		"also stripped": {"form: header, header: X-Goog-Api-Key, strip: key", func(h *http.Request) {
			h.URL.RawQuery = "key=" + mine + "&alt=sse"
		}, "alt=sse"},
		"user in URL": {"form: header, header: X-Api-Key", func(h *http.Request) {
			h.URL.User = url.UserPassword("me", mine)
		}, ""},
		"trailer": {"form: bearer", func(h *http.Request) {
			h.Method, h.Body, h.ContentLength = "POST", io.NopCloser(strings.NewReader("body")), -1
			h.Trailer = http.Header{"Authorization": {mine}, "X-Checksum": {"1"}}
		}, "X-Checksum"},
	} {
		var seen string
		origin := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			seen = fmt.Sprint(r.Header, r.URL, r.Trailer)
		}))
		s := set(t, "credentials:\n  - {name: service, source: 'env:COVE_TEST_SERVICE', to: [{hosts: api.example.com, "+
			c.form+"}]}")
		_, h := request(t, "GET", "https://api.example.com/v1")
		c.send(h)
		if _, err := s.Apply(judged(t, h), h, nil); err != nil {
			t.Fatal(err)
		}
		res, err := lab(t, origin).RoundTrip(h)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		res.Body.Close()
		if h.URL.User != nil || strings.Contains(seen, mine) ||
			strings.Contains(seen, base64.StdEncoding.EncodeToString([]byte("me:"+mine))) {
			t.Errorf("%s: the sandbox's own arrived: %s", name, seen)
		}
		if strings.Count(seen, canary) != 1 || !strings.Contains(seen, c.keep) {
			t.Errorf("%s: not exactly one value arrived, or %q did not: %s", name, c.keep, seen)
		}
		origin.Close()
	}
}

// lab leads every name to one origin.
func lab(t *testing.T, origin *httptest.Server) *http.Transport {
	t.Helper()
	transport := &http.Transport{

		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the origin's name is not under test
		DialContext:     (&dialer{origin.Listener.Addr().String()}).dial,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// TestElsewhere: a placeholder sent anywhere else stays a placeholder.
func TestElsewhere(t *testing.T) {
	t.Setenv("COVE_TEST_SERVICE", canary)
	s := set(t, bearerTo)
	placeholder := s.Placeholders()["SERVICE_TOKEN"]
	_, h := request(t, "POST", "https://api.example.com/v1/"+placeholder+"?q="+placeholder)
	h.Header.Set("X-Other", placeholder)
	h.Header.Set("Authorization", "Bearer "+placeholder)
	h.Header.Set("Cookie", "k="+placeholder)
	h.Body = io.NopCloser(strings.NewReader(placeholder))
	if _, err := s.Apply(judged(t, h), h, nil); err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(h.Body)
	for what, got := range map[string]string{"path": h.URL.Path, "query": h.URL.RawQuery,
		"header": h.Header.Get("X-Other"), "cookie": h.Header.Get("Cookie"), "body": string(body)} {
		if !strings.Contains(got, placeholder) || strings.Contains(got, canary) {
			t.Errorf("the %s became %s", what, got)
		}
	}
	if h.Header.Get("Authorization") != "Bearer "+canary {
		t.Errorf("the credential was not set: %v", h.Header)
	}
}

// gateway applies a set to every request, as the real one does.
type gateway struct {
	t    *testing.T
	set  *Set
	next http.RoundTripper
}

func (g gateway) RoundTrip(h *http.Request) (*http.Response, error) {
	h = h.Clone(h.Context())
	if _, err := g.set.Apply(judged(g.t, h), h, nil); err != nil {
		return nil, err
	}
	return g.next.RoundTrip(h)
}

// TestRedirects: a real client that follows redirects carries nothing to another host, port, path or scheme.
func TestRedirects(t *testing.T) {
	t.Setenv("COVE_TEST_SERVICE", canary)
	s := set(t, bearerTo)
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, to := range []string{"https://evil.test/v1/x", "https://www.api.example.com/v1/x",
			"https://api.example.com:8443/v1/x", "https://api.example.com/v2/x", "https://192.0.2.1/v1/x", "//evil.test/v1/x"} {
			var mu sync.Mutex
			arrived := map[string]string{}
			origin := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				arrived[r.Host+r.URL.Path] = fmt.Sprint(r.Header, r.URL)
				mu.Unlock()
				if r.URL.Path == "/v1/start" {
					http.Redirect(w, r, to, status)
				}
			}))
			client := http.Client{Transport: gateway{t, s, lab(t, origin)}}
			_, h := request(t, "GET", "https://api.example.com/v1/start")
			h.Header.Set("Authorization", "Bearer placeholder")
			res, err := client.Do(h)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			origin.Close()
			if !strings.Contains(arrived["api.example.com/v1/start"], canary) {
				t.Errorf("the first request had no credential: %v", arrived)
			}
			delete(arrived, "api.example.com/v1/start")
			if len(arrived) != 1 {
				t.Errorf("%d to %s was not followed: %v", status, to, arrived)
			}
			noLeak(t, fmt.Sprintf("%d to %s", status, to), fmt.Sprint(arrived))
		}
	}
}

// TestTwoOfOnePlace: when two credentials share a place, the request is refused.
func TestTwoOfOnePlace(t *testing.T) {
	t.Setenv("COVE_TEST_SERVICE", canary)
	s := set(t, `
credentials:
  - {name: one, source: 'env:COVE_TEST_SERVICE', to: [{hosts: api.example.com, form: bearer}]}
  - {name: two, source: 'env:COVE_TEST_SERVICE', to: [{hosts: '*.example.com', form: basic, user: u}, {hosts: api.example.com, paths: /q/**, form: query, parameter: key}]}
`)
	r, h := request(t, "GET", "https://api.example.com/x")
	if _, err := s.Apply(r, h, nil); cove.ErrorCode(err) != cove.Conflict || len(h.Header) != 0 {
		t.Errorf("%v, %v", err, h.Header)
	}
	if r, h = request(t, "GET", "https://www.example.com/x"); true {
		if names, err := s.Apply(r, h, nil); err != nil || fmt.Sprint(names) != "[two]" {
			t.Errorf("%v, %v", names, err)
		}
	}
	values := NewValues(clock.Real())
	for _, yaml := range []string{"{name: a, source: 'env:A_A', variables: V, to: [{hosts: x.test, form: bearer}]}, " +
		"{name: b, source: 'env:A_A', variables: V, to: [{hosts: y.test, form: bearer}]}"} {
		if _, err := NewSet(values, parse(t, "credentials: ["+yaml+"]")...); cove.ErrorCode(err) != cove.InvalidArgument {
			t.Errorf("one variable for two: %v", err)
		}
	}
	one := parse(t, bearerTo)
	if _, err := NewSet(values, one[0], one[0]); cove.ErrorCode(err) != cove.InvalidArgument {
		t.Errorf("the same credential twice: %v", err)
	}
}

// TestInjectionImpliesInterception: C3, at every change and at every connection.
func TestInjectionImpliesInterception(t *testing.T) {
	s := set(t, `
credentials:
  - {name: one, source: 'env:COVE_TEST_SERVICE', to: [{hosts: [api.example.com, '*.sub.example.com'], ports: [443, 8443-8450], paths: /v1/**, form: bearer}]}
`)
	for target, want := range map[string]bool{"api.example.com:443": true, "api.example.com:8445": true,
		"a.sub.example.com:443": true, "api.example.com:80": false, "example.com:443": false, "other.test:443": false} {
		host, port, err := policy.ParseAuthority(target, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Binds(host, port); got != want {
			t.Errorf("Binds(%s) = %v", target, got)
		}
	}
	for rules, ok := range map[string]bool{
		"[{hosts: api.example.com}]":                                  true,
		"[{hosts: api.example.com, pass_through: true}]":              false,
		"[{hosts: '*.sub.example.com', pass_through: true}]":          false,
		"[{hosts: api.example.com, ports: 8443, pass_through: true}]": false,
		"[{hosts: other.test, pass_through: true}]":                   true,
		"[{hosts: api.example.com, action: ask, pass_through: true}]": false,
		"[]": true,
	} {
		d, err := policy.Parse("policy.yaml", []byte("rules: "+rules))
		if err != nil {
			t.Fatal(err)
		}
		p, err := policy.Compile(policy.Machine{}, d)
		if err != nil {
			t.Fatal(err)
		}
		err = s.Check(p.Decide)
		if (err == nil) != ok || !ok && cove.ErrorCode(err) != cove.Conflict {
			t.Errorf("%s: %v", rules, err)
		}
	}
}

func TestPlaceholders(t *testing.T) {
	noAnthropic(t)
	all, err := Presets()
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSet(NewValues(clock.Real()), all...)
	if err != nil {
		t.Fatal(err)
	}
	a, b := s.Placeholders(), s.Placeholders()
	for variable, shape := range map[string]string{
		"ANTHROPIC_API_KEY": `^sk-ant-api03-[A-Za-z0-9]{75}-cove-placeholder-AA$`,
		"OPENAI_API_KEY":    `^sk-proj-[A-Za-z0-9]{156}$`, "GEMINI_API_KEY": `^AIza[A-Za-z0-9]{35}$`,
		"GOOGLE_API_KEY": `^AIza[A-Za-z0-9]{35}$`, "OPENROUTER_API_KEY": `^sk-or-v1-[A-Za-z0-9]{64}$`,
		"GH_TOKEN": `^ghp_[A-Za-z0-9]{36}$`, "GITHUB_TOKEN": `^ghp_[A-Za-z0-9]{36}$`,
		"AWS_ACCESS_KEY_ID": `^AKIA[A-Za-z0-9]{16}$`, "AWS_SECRET_ACCESS_KEY": `^AKIA[A-Za-z0-9]{16}$`,
	} {
		if !regexp.MustCompile(shape).MatchString(a[variable]) {
			t.Errorf("%s=%s does not look like %s", variable, a[variable], shape)
		}
		if a[variable] == b[variable] {
			t.Errorf("two sandboxes share %s", variable)
		}
		delete(a, variable)
	}
	if len(a) != 0 {
		t.Errorf("besides: %v", a)
	}
	seen := map[rune]bool{}
	for _, r := range letters(10000) {
		seen[r] = true
	}
	if len(seen) != 62 {
		t.Errorf("placeholders are made of %d characters", len(seen))
	}
}

// TestPresetsFitPolicies: a request allowed by a policy preset gets the credential of the same name.
func TestPresetsFitPolicies(t *testing.T) {
	all, err := Presets()
	if err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{
		"anthropic": "POST https://api.anthropic.com/v1/messages", "openai": "POST https://api.openai.com/v1/responses",
		"openrouter": "POST https://openrouter.ai/api/v1/chat/completions",
		"github":     "POST https://github.com/owner/repo.git/git-upload-pack",
	} {
		method, rawURL, _ := strings.Cut(target, " ")
		r, h := request(t, method, rawURL)
		p, err := policy.Compile(policy.Machine{}, &policy.Document{
			Mode: cove.NetworkLimited, Presets: []policy.PresetUse{{Name: name}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if v := p.Decide(r); v.Action != policy.Allow {
			t.Errorf("the policy preset %s does not allow %s: %s", name, target, v.Reason)
		}
		chosen, err := Choose(nil, name)
		if err != nil {
			t.Fatal(err)
		}
		chosen[0].Source, _ = ParseSource("env:COVE_TEST_SERVICE")
		t.Setenv("COVE_TEST_SERVICE", canary)
		s, err := NewSet(NewValues(clock.Real()), chosen...)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Check(p.Decide); err != nil {
			t.Error(err)
		}
		if names, err := s.Apply(r, h, nil); err != nil || len(names) != 1 {
			t.Errorf("%s: %v, %v", target, names, err)
		}
	}
	for _, target := range []string{"GET https://api.anthropic.com/v1/organizations/api_keys",
		"POST https://api.anthropic.com/v1/files", "GET https://api.openai.com/v1/files",
		"POST https://api.openai.com/v1/organization/admin_api_keys",
		"POST https://openrouter.ai/api/v1/keys", "POST https://generativelanguage.googleapis.com/v1beta/files",
		"POST https://github.com/settings/tokens"} {
		method, rawURL, _ := strings.Cut(target, " ")
		r, _ := request(t, method, rawURL)
		for i := range all {
			for j := range all[i].Bindings {
				if all[i].Bindings[j].matches(r) {
					t.Errorf("%s gets the credential %s", target, all[i].Name)
				}
			}
		}
	}
}

func TestChoose(t *testing.T) {
	own := parse(t, bearerTo+"  - {name: openai, source: 'env:MY_OPENAI', to: [{hosts: ai.example.com, form: bearer}]}\n")
	got, err := Choose(own, "openai", "service", "github")
	if err != nil || len(got) != 3 || got[0].Source.String() != "env:MY_OPENAI" || got[2].Source.String() != "gh" {
		t.Errorf("%v, %v", got, err)
	}
	_, err = Choose(own, canary)
	if cove.ErrorCode(err) != cove.NotFound || !strings.Contains(cove.ErrorHint(err),
		"anthropic, bedrock, gemini, github, openai, openrouter, service, vertex") {
		t.Errorf("%v", err)
	}
	noLeak(t, "the error", err.Error())
	for name, want := range map[string]string{
		"githbu":                           `there is no credential "githbu"`,
		"git\x1b[2Jhub":                    "there is no credential of that name, which may be a key",
		"0123456789abcdef0123456789abcdef": "there is no credential of that name, which may be a key",
	} {
		if _, err := Choose(own, "openai", name); cove.ErrorMessage(err) != want {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestNothingIsSeen: C1. The test uses a credential in every way, right and wrong, and searches all output for the
// value.
func TestNothingIsSeen(t *testing.T) {
	t.Setenv("COVE_TEST_SERVICE", canary)
	home := t.TempDir()
	t.Setenv("HOME", home)
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(canary+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	log := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	see := func(what string, things ...any) {
		for _, x := range things {
			log.Info(what, "x", x)
			fmt.Fprintf(&out, "%s: %v %+v %#v %s %q %x\n", what, x, x, x, x, x, x)
		}
	}
	broken := strings.Repeat("e", 20)
	for name, source := range map[string]string{
		"env": "env:COVE_TEST_SERVICE", "file": "file:" + file, "command": "command:printenv COVE_TEST_SERVICE",
		"failing":   "[command, sh, -c, 'echo " + canary[:0] + "$COVE_TEST_SERVICE >&2; echo $COVE_TEST_SERVICE; exit 3']",
		"two lines": "[command, sh, -c, 'echo $COVE_TEST_SERVICE; echo $COVE_TEST_SERVICE']",
		"spaces":    "[command, sh, -c, 'echo a $COVE_TEST_SERVICE']",
		"tab":       `[command, sh, -c, 'printf "a\t$COVE_TEST_SERVICE"']`,
		"missing":   "env:COVE_TEST_" + broken, "git": "git-credential", "gh": "gh",
		"too long": "[command, sh, -c, 'for i in $(seq 9999); do printf $COVE_TEST_SERVICE; done']",
	} {
		for _, form := range []string{"form: bearer", "form: basic, user: me", "form: query, parameter: key",
			"form: header, header: X-Key"} {
			quoted := source
			if !strings.HasPrefix(source, "[") {
				quoted = "'" + source + "'"
			}
			s := set(t, "credentials:\n  - {name: service, source: "+quoted+", variables: V, to: [{hosts: api.example.com, "+
				form+"}]}")
			r, h := request(t, "GET", "https://api.example.com/v1/x")
			names, err := s.Apply(r, h, nil)
			see(name, names, err, s, *s, s.credentials, s.values, *s.values.held[anyPlace(s.values)], s.Placeholders())
			known, version := s.Known()
			see(name+" known", known, version)
			s.Refused(r)
		}
	}
	// A value in place of a reference.
	for _, yaml := range []string{
		"credentials: [{name: a, source: " + canary + "}]", "credentials: [{name: a, source: 'env:" + canary + "'}]",
		"credentials: [{name: " + canary + "@, source: gh}]",
		"credentials: [{name: a, source: [" + canary + "]}]", "credentials: [{name: a, source: gh, shape: '" + canary +
			"', to: [{hosts: x.test, form: bearer}]}]",
		"credentials: [{name: a, source: gh, variables: " + canary + ", to: [{hosts: x.test, form: bearer}]}]",
		"credentials: " + canary, canary, "credentials: [" + canary + "]",
		"credentials: [{name: a, source: gh, to: [{hosts: x.test, form: '" + canary + "'}]}]",
		"credentials: [{name: a, source: {k: " + canary + "}}]", "credentials: [{name: a, source: !!binary " + canary + "}]",
		"credentials: [{name: a, source: gh, to: [{hosts: x.test, form: header, header: X-Key, template: " + canary + "}]}]",
		"credentials: {name: a, value: " + canary + "}", "credentials: [{name: a\n value: " + canary + "}]",
		"credentials:\n\t- " + canary,
	} {
		_, err := Parse("test.yaml", []byte(yaml))
		if err == nil {
			t.Errorf("accepted: %s", yaml)
		}
		see("parse", err)
	}
	noLeak(t, "what can be seen", out.String())
	if !strings.Contains(out.String(), "[secret]") || strings.Count(out.String(), "test.yaml") < 10 {
		t.Error("the search saw nothing of values or errors")
	}
	// No file contains it.
	filepath.WalkDir(home, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			data, _ := os.ReadFile(path)
			noLeak(t, path, string(data))
		}
		return nil
	})
	// The search itself works.
	if leaks("x"+base64.StdEncoding.EncodeToString([]byte("me:"+canary))) == "" || leaks(canary) == "" {
		t.Error("the search finds nothing")
	}
}

func anyPlace(v *Values) place {
	for p := range v.held {
		return p
	}
	p := place{"none", ""}
	v.held[p] = &held{}
	return p
}

// TestKnownValuesAreRedacted: a value that was set is removed from the answer, in each form.
func TestKnownValuesAreRedacted(t *testing.T) {
	t.Setenv("COVE_TEST_SERVICE", canary)
	for _, form := range []string{"form: bearer", "form: basic, user: me", "form: query, parameter: key",
		"form: header, header: X-Key, template: 'k {}'"} {
		s := set(t, "credentials:\n  - {name: service, source: 'env:COVE_TEST_SERVICE', to: [{hosts: api.example.com, "+form+
			"}]}")
		r, h := request(t, "GET", "https://api.example.com/v1/x")
		if _, err := s.Apply(r, h, nil); err != nil {
			t.Fatal(err)
		}
		known, _ := s.Known()
		redactor, err := redact.New(known...)
		if err != nil {
			t.Fatal(err)
		}
		echo := fmt.Sprint(h.Header, h.URL)
		if leaks(echo) == "" {
			t.Errorf("%s: nothing was set: %s", form, echo)
		}
		noLeak(t, form+" redacted", redactor.Text(echo))
	}
}

// TestRotation: S9. A value that is replaced under load is whole in each request, and unused afterwards; the old one
// stays known.
func TestRotation(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	put := func(v string) {
		tmp := file + ".new"
		if err := os.WriteFile(tmp, []byte(v), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(tmp, file); err != nil {
			t.Fatal(err)
		}
	}
	put("old-value-0123456789")
	s := set(t, "credentials: [{name: a, source: 'file:"+file+"', to: [{hosts: api.example.com, form: bearer}]}]")
	use := func() string {
		r, h := request(t, "GET", "https://api.example.com/")
		if _, err := s.Apply(r, h, nil); err != nil {
			t.Error(err)
		}
		return h.Header.Get("Authorization")
	}
	if got := use(); got != "Bearer old-value-0123456789" {
		t.Errorf("before the change: %s", got)
	}
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			for range 20 {
				if got := use(); got != "Bearer old-value-0123456789" && got != "Bearer new-value-9876543210" {
					t.Errorf("neither old nor new: %s", got)
				}
			}
		})
	}
	_, before := s.Known()
	put("new-value-9876543210")
	if got := use(); got != "Bearer new-value-9876543210" {
		t.Errorf("after the change: %s", got)
	}
	group.Wait()
	known, after := s.Known()
	if len(known) < 2 || after == before {
		t.Errorf("%d values are known, version %d and %d", len(known), before, after)
	}
}

type dialer struct{ to string }

func (d *dialer) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	return (&net.Dialer{Timeout: time.Minute}).DialContext(ctx, "tcp", d.to)
}

func BenchmarkApply(b *testing.B) {
	b.Setenv("COVE_TEST_SERVICE", canary)
	s := set(b, bearerTo)
	r, h := request(b, "GET", "https://api.example.com/v1/x?a=1")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Apply(r, h, nil); err != nil {
			b.Fatal(err)
		}
	}
}
