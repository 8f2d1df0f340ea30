package gateway

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/credential"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
)

const testProviders = `
providers:
  - {name: one, kind: anthropic, base_url: 'https://models.test/v1', credential: first}
  - {name: two, kind: anthropic, base_url: 'https://models.test/v1', credential: second, headers: {X-Team: red}}
  - {name: three, kind: openai, base_url: 'http://localhost:11434/v1', models: [small]}
  - {name: unbound, kind: openai, base_url: 'https://other.test/v1', credential: first}
`

const testCredentials = `
credentials:
  - {name: first, source: "env:FIRST_KEY", variables: FIRST, to: [{form: header, header: X-Api-Key, hosts: models.test}]}
  - {name: second, source: "env:SECOND_KEY", variables: SECOND, to: [{form: header, header: X-Api-Key, hosts: models.test}]}
`

// modelGateway returns a gateway with several providers, two of which are accounts at one host.
func modelGateway(t *testing.T) *Gateway {
	t.Helper()
	t.Setenv("FIRST_KEY", "the-first-key")
	t.Setenv("SECOND_KEY", "the-second-key")
	providers, err := model.Parse("providers.yaml", []byte(testProviders))
	if err != nil {
		t.Fatal(err)
	}
	credentials, err := credential.Parse("credentials.yaml", []byte(testCredentials))
	if err != nil {
		t.Fatal(err)
	}
	g := New(Options{Dir: t.TempDir(), Clock: clock.Real(), Log: slog.New(slog.DiscardHandler),
		Described: func() (Described, error) { return Described{credentials, providers}, nil }})
	t.Cleanup(g.Close)
	return g
}

func openModels(t *testing.T, s Spec) *Route {
	t.Helper()
	s.Sandbox, s.Owner = cove.NewSandboxID(), cove.MachineOwner()
	w, err := modelGateway(t).Open(s)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// askEndpoint requests an endpoint, and takes the forwarded request through the stages.
func askEndpoint(t *testing.T, w *Route, path, body string,
	header http.Header) (*http.Request, proxy.Passage, *proxy.Answer) {
	t.Helper()
	r := policy.Request{Layer: policy.LayerHTTP, Host: hostOf(t, policy.GatewayService), Port: 80, Method: http.MethodPost,
		Path: endpointPath + path}
	if header == nil {
		header = http.Header{}
	}
	h := &http.Request{Method: http.MethodPost, Header: header, URL: &url.URL{Path: r.Path},
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body))}
	if v := w.judge(r); v.Action != policy.Allow {
		t.Fatalf("%s: %+v", path, v)
	}
	origin, answer := proxyView{w}.Endpoint(r, h)
	if answer != nil {
		return nil, nil, answer
	}
	to := policy.Request{Layer: policy.LayerHTTP, Host: hostOf(t, origin.URL.Hostname()), Port: 443,
		Method: http.MethodPost, Path: origin.URL.Path, Endpoint: true}
	if origin.URL.Port() != "" {
		to.Port = 11434
	}
	if v := w.judge(to); v.Action != policy.Allow || !strings.HasPrefix(v.Rule, "provider ") {
		t.Errorf("%s: %+v", origin.URL, v)
	}
	h.URL = origin.URL
	p, err := origin.Prepare(to, h)
	if errors.As(err, &answer) {
		return nil, nil, answer
	}
	if err != nil {
		t.Fatal(err)
	}
	return h, p, nil
}

// TestProviderHeader: each request goes to the selected account of the sandbox's, with only that account's key.
func TestProviderHeader(t *testing.T) {
	w := openModels(t, Spec{Providers: []string{"one", "two", "three"}})
	for _, c := range []struct {
		provider, path string
		key            string
		status         int
	}{
		{"", "messages", "the-first-key", 0},
		{"one", "messages", "the-first-key", 0},
		{" two", "messages", "the-second-key", 0},
		{"", "chat/completions", "", 0},
		{"two", "chat/completions", "", 404},
		{"four", "messages", "", 403},
		{"One", "messages", "", 403},
		{"one,two", "messages", "", 403},
		{"anthropic", "messages", "", 403},
	} {
		header := http.Header{"X-Api-Key": {"placeholder"}, "Authorization": {"Bearer placeholder"}}
		if c.provider != "" {
			header.Set(providerHeader, c.provider)
		}
		h, p, answer := askEndpoint(t, w, c.path, `{"model":"small"}`, header)
		if c.status != 0 {
			if answer == nil || answer.Status != c.status || !json.Valid(answer.Body) {
				t.Errorf("%+v: %+v", c, answer)
			}
			continue
		}
		if answer != nil {
			t.Errorf("%+v: %s", c, answer.Body)
			continue
		}
		if h.Header.Get("X-Api-Key") != c.key || h.Header.Get("Authorization") != "" || h.Header.Get(providerHeader) != "" ||
			(h.Header.Get("X-Team") == "red") != (c.key == "the-second-key") {
			t.Errorf("%+v: sent %v", c, h.Header)
		}
		p.End(nil)
	}
	h, _, answer := askEndpoint(t, w, "messages", "{}", http.Header{providerHeader: {"one", "two"}})
	if answer == nil || answer.Status != 403 {
		t.Errorf("two providers: %v %+v", h, answer)
	}
	h, _, answer = askEndpoint(t, w, "messages", "{}", http.Header{formerHeader: {"two"}})
	if answer != nil || h.Header.Get(formerHeader) != "" || h.Header.Get("X-Api-Key") != "the-second-key" {
		t.Errorf("the former name: %v %+v", h, answer)
	}
	if v := w.judge(policy.Request{Layer: policy.LayerHTTP, Host: hostOf(t, "models.test"), Port: 443, Method: "POST",
		Path: "/v1/messages"}); v.Action != policy.Deny {
		t.Errorf("directly: %+v", v)
	}
	for _, path := range []string{"/v1/files", "/v1/messages/batches", "/v1/organizations"} {
		if v := w.judge(policy.Request{Layer: policy.LayerHTTP, Host: hostOf(t, "models.test"), Port: 443, Method: "POST",
			Path: path, Endpoint: true}); v.Action != policy.Deny {
			t.Errorf("%s: %+v", path, v)
		}
	}
	env := w.Env()
	if env["ANTHROPIC_BASE_URL"] != "http://gateway.cove.internal/proxy" ||
		env["OPENAI_BASE_URL"] != "http://gateway.cove.internal/proxy/v1" || env["OPENAI_API_KEY"] == "" ||
		env["FIRST"] == "" || strings.Contains(env["FIRST"], "key") {
		t.Errorf("%v", env)
	}
}

// TestProvidersThatCannotBe: invalid providers are refused before a sandbox starts.
func TestProvidersThatCannotBe(t *testing.T) {
	g := modelGateway(t)
	for name, s := range map[string]Spec{
		"nobody":     {Providers: []string{"nobody"}},
		"bound to":   {Providers: []string{"unbound"}},
		"prices":     {Providers: []string{"one"}, Budget: cove.Budget{Cost: 1}},
		"credential": {Providers: []string{"one"}, Credentials: []string{"nobody"}},
	} {
		s.Sandbox = cove.NewSandboxID()
		if _, err := g.Open(s); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestUseOfModels: stated usage is counted, even if the client leaves or the origin fails.
func TestUseOfModels(t *testing.T) {
	w := openModels(t, Spec{Providers: []string{"one", "three"}, Budget: cove.Budget{Requests: 6, Tokens: 1_000_000}})
	const hello = `{"model":"small","messages":[]}` // 31 bytes
	for _, c := range []struct {
		status     int // 0: no answer
		kind, body string
		readAll    bool
	}{
		{200, "application/json", `{"usage":{"input_tokens":10,"output_tokens":1}}`, true},
		{529, "application/json", `{"usage":{"input_tokens":10,"output_tokens":1}}`, true},
		{200, "text/event-stream",
			"data: {\"message\":{\"usage\":{\"input_tokens\":10,\"output_tokens\":1}}}\n\ndata: {}\n\n", false},
		{0, "", "", true},  // the client has left
		{0, "", "", false}, // the origin was not reached
	} {
		h, p, answer := askEndpoint(t, w, "messages", hello, nil)
		if answer != nil {
			t.Fatalf("%s", answer.Body)
		}
		if h.Header.Get("Accept-Encoding") != "identity" {
			t.Errorf("%v", h.Header)
		}
		if c.status != 0 || c.readAll {
			if sent, err := io.ReadAll(h.Body); err != nil || string(sent) != hello {
				t.Errorf("sent %q, %v", sent, err)
			}
		}
		if c.status != 0 {
			res := &http.Response{StatusCode: c.status, Header: http.Header{"Content-Type": {c.kind}},
				Body: io.NopCloser(strings.NewReader(c.body)), ContentLength: -1}
			if err := p.Response(res); err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(res.Body); err != nil || string(got) != c.body {
				t.Errorf("%q %v", got, err)
			}
		}
		p.End(proxy.ErrUnfinished)
	}
	want := []model.ProviderUsage{{Provider: "one", Usage: model.Usage{
		Requests: 5, Input: 10 + 10 + 8, Output: 1 + 2, Estimated: 2,
	}}}
	if got := w.Models(); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for body, status := range map[string]int{`{"model":"large"}`: 403, `{"model":"small","background":true}`: 400,
		`{"model":`: 400} {
		if _, _, answer := askEndpoint(t, w, "responses", body, nil); answer == nil || answer.Status != status {
			t.Errorf("%s: %+v", body, answer)
		}
	}
	if _, _, answer := askEndpoint(t, w, "responses", hello, http.Header{"Content-Encoding": {"gzip"}}); answer == nil ||
		answer.Status != 415 {
		t.Errorf("%+v", answer)
	}
	if got := w.Models(); !slices.Equal(got, want) {
		t.Errorf("what was refused has been counted: %+v", got)
	}
	if _, p, answer := askEndpoint(t, w, "responses", hello, nil); answer != nil {
		t.Errorf("%s", answer.Body)
	} else {
		p.End(nil)
	}
	if _, _, answer := askEndpoint(t, w, "messages", hello, nil); answer == nil || answer.Status != 429 {
		t.Errorf("beyond the budget: %+v", answer)
	}
	_, _, err := send(t, w, "POST", "https://models.test/v1/messages", hello)
	if answer := (*proxy.Answer)(nil); !errors.As(err, &answer) || answer.Status != 429 {
		t.Errorf("beyond the budget, asked directly: %v", err)
	}
}

// TestRefusedKeys: a request for a model without a key is answered as its provider does, where no client tries again;
// and what becomes of a provider's keys is known.
func TestRefusedKeys(t *testing.T) {
	w := openModels(t, Spec{Providers: []string{"one", "two"}})
	const hello = `{"model":"small","messages":[]}`
	_, changed := w.Providers().Of("one")
	os.Unsetenv("FIRST_KEY")
	_, _, answer := askEndpoint(t, w, "messages", hello, nil)
	if answer == nil || answer.Status != http.StatusUnauthorized || answer.Header.Get("X-Should-Retry") != "false" ||
		!strings.Contains(string(answer.Body), "authentication_error") ||
		!strings.Contains(string(answer.Body), "export FIRST_KEY=") {
		t.Fatalf("without a key: %+v", answer)
	}
	<-changed
	if why, _ := w.Providers().Of("one"); why == nil || !strings.Contains(cove.ErrorHint(why), "export FIRST_KEY=") {
		t.Errorf("without a key: %v", why)
	}
	if why, _ := w.Providers().Of("two"); why != nil {
		t.Errorf("the other provider: %v", why)
	}
	t.Setenv("FIRST_KEY", "the-first-key-anew")
	for _, c := range []struct {
		status  int
		refused bool
	}{{http.StatusOK, false}, {http.StatusTooManyRequests, false}, {http.StatusUnauthorized, false},
		{http.StatusUnauthorized, false}, {http.StatusUnauthorized, true}, {http.StatusOK, false}} {
		_, p, answer := askEndpoint(t, w, "messages", hello, nil)
		if answer != nil {
			t.Fatalf("%s", answer.Body)
		}
		res := &http.Response{StatusCode: c.status, Header: http.Header{}, Body: http.NoBody}
		if err := p.Response(res); err != nil {
			t.Fatal(err)
		}
		p.End(nil)
		if why, _ := w.Providers().Of("one"); (why != nil) != c.refused {
			t.Errorf("after %d: %v", c.status, why)
		}
	}
}

// TestUnreachedModels: requests of all kinds to a provider that is not reached are an outage, and so are those that its
// open circuit refuses; an answer ends it, and a failure of the provider itself is none.
func TestUnreachedModels(t *testing.T) {
	w := openModels(t, Spec{Providers: []string{"one"}})
	all := w.Providers()
	pass := func(status int, failure error) {
		t.Helper()
		_, p, answer := askEndpoint(t, w, "messages", `{"model":"small","messages":[]}`, nil)
		if answer != nil {
			t.Fatalf("%s", answer.Body)
		}
		if status > 0 {
			if err := p.Response(&http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody}); err != nil {
				t.Fatal(err)
			}
		}
		p.End(failure)
	}
	is := func(what string, outage bool, latest string) {
		t.Helper()
		why := all.Latest("one")
		if (all.Outage("one") != nil) != outage || (why != nil) != (latest != "") ||
			why != nil && !strings.Contains(why.Error(), latest) {
			t.Errorf("%s: an outage %v, the latest %v", what, all.Outage("one"), why)
		}
	}
	pass(0, errDown)
	pass(0, proxy.ErrUnfinished)
	pass(0, errDown)
	is("two failures", false, "models.test:443 does not answer requests for models: "+errDown.Error())
	pass(0, errDown)
	is("three failures", true, errDown.Error())
	pass(500, nil)
	is("an error of the provider", false, "models.test has answered the last request for a model with 500")
	pass(200, errDown)
	is("an answer that broke off", false, "")
	for range maxFailures {
		pass(0, errDown)
	}
	all.Forget("one")
	for range 3 {
		r := policy.Request{Layer: policy.LayerHTTP, Host: hostOf(t, "models.test"), Port: 443, Method: http.MethodGet,
			Path: "/v1/models", Endpoint: true}
		h := &http.Request{Method: r.Method, Header: http.Header{}, URL: &url.URL{Path: r.Path}}
		_, err := enter(w.models.providers[0].pipeline, r, h)
		if !strings.Contains(refusal(t, err).Reason, "failed 5 times in a row") {
			t.Fatal(err)
		}
	}
	is("the circuit", true, errDown.Error())
	if err := all.Reach(t.Context(), "none"); cove.ErrorCode(err) != cove.NotFound {
		t.Errorf("an unknown provider is reached: %v", err)
	}
}

// TestEndpointsAreNotForAll: without providers and credentials the gateway's name does not exist.
func TestEndpointsAreNotForAll(t *testing.T) {
	none := openModels(t, Spec{})
	git := openModels(t, Spec{Credentials: []string{"first"}})
	denied := openModels(t, Spec{Providers: []string{"one"}, Policy: []*policy.Document{deny(t, policy.GatewayService)}})
	for _, layer := range []policy.Layer{policy.LayerDNS, policy.LayerConnect, policy.LayerHTTP} {
		r := policy.Request{Layer: layer, Host: hostOf(t, policy.GatewayService), Port: 80, Method: "POST",
			Path: "/proxy/v1/messages"}
		for w, want := range map[*Route]policy.Action{none: policy.Deny, git: policy.Allow, denied: policy.Deny} {
			if v := w.judge(r); v.Action != want {
				t.Errorf("%s: %+v", layer, v)
			}
		}
		if r.Port = 8080; layer != policy.LayerDNS && git.judge(r).Action != policy.Deny {
			t.Errorf("%s: another port", layer)
		}
	}
	if _, _, answer := askEndpoint(t, git, "messages", "{}", nil); answer == nil || answer.Status != 403 {
		t.Errorf("a model without a provider: %+v", answer)
	}
}

func deny(t *testing.T, hosts ...string) *policy.Document {
	t.Helper()
	d, err := policy.Args("test", policy.Deny, hosts...)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// FuzzGitLogin: any request yields at most one user and password, of the host that it names.
func FuzzGitLogin(f *testing.F) {
	f.Add([]byte("capability[]=authtype\nprotocol=https\nhost=git.test:8443\npath=a/b.git\nwwwauth[]=Basic " +
		"realm=\"x\"\n\n"))
	f.Add([]byte("protocol=https\r\nhost=git.test\r\nusername=robot\r\n"))
	f.Add([]byte("url=https://git.test/\nquit=1\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		asked := 0
		user, password, ok := gitLogin(in, func(h policy.Host, port uint16) (string, string, bool) {
			asked++
			if h.IsZero() || port == 0 {
				t.Errorf("asked for %q %d", h, port)
			}
			return "robot", "placeholder", h.Name() == "git.test"
		})
		if ok != (user == "robot" && password == "placeholder") || asked > 1 || !ok && user+password != "" {
			t.Errorf("%q: %q %q %v", in, user, password, ok)
		}
	})
}
