package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/credential"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/test/modeltest"
)

const canaryKey = "canary-of-a-key-0123456789"

var canaryAWS = modeltest.AWSKeys{ID: "AKIACANARY", Secret: canaryKey + "/secret", Session: canaryKey + "/session+=="}

// kindCase is one kind of provider, and how a client of it asks.
type kindCase struct {
	provider    string // its description
	path, model string // of a stream
	body        string
	refused     string // is in the answer beyond the budget
}

var kindCases = map[model.Kind]kindCase{
	model.Anthropic: {"base_url: 'https://models.example.com/v1', credential: key", "v1/messages", "small",
		`{"model":"small","stream":true,"messages":[{"role":"user","content":"hi"}]}`, `"rate_limit_error"`},
	model.OpenAI: {"base_url: 'https://models.example.com/v1', credential: key", "v1/chat/completions", "small",
		`{"model":"small","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hi"}]}`,
		`"insufficient_quota"`},
	model.Gemini: {"base_url: 'https://models.example.com', credential: key",
		"v1beta/models/small:streamGenerateContent?alt=sse&key=placeholder", "small",
		`{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}`, `"RESOURCE_EXHAUSTED"`},
	model.Bedrock: {"base_url: 'https://models.example.com', credential: aws, region: eu-west-1",
		"model/small%3A0/invoke-with-response-stream", "small:0",
		`{"anthropic_version":"bedrock-2023-05-31","messages":[{"role":"user","content":"hi"}]}`,
		`"ServiceQuotaExceededException"`},
	model.Vertex: {"base_url: 'https://models.example.com', credential: key, region: eu, project: p",
		"v1/projects/q/locations/r/publishers/anthropic/models/small@1:streamRawPredict", "small@1",
		`{"anthropic_version":"vertex-2023-10-16","stream":true,"messages":[{"role":"user","content":"hi"}]}`,
		`"rate_limit_error"`},
}

// kindLab is a gateway whose only provider is a real TLS server.
type kindLab struct {
	route  *Route
	client *http.Client
	server *httptest.Server
	models *modeltest.Server

	mu       sync.Mutex
	taken    []decision.Decision // guarded by mu
	problems []error             // guarded by mu; of what reached the origin
}

func newKindLab(t *testing.T, k model.Kind, c kindCase, b cove.Budget) *kindLab {
	t.Helper()
	providers, err := model.Parse("p.yaml", []byte(fmt.Sprintf("providers:\n"+
		"- {name: the, kind: %s, %s, models: ['small*'], "+
		"prices: [{models: %q, input: 1000, output: 10000, cache_read: 500}, {models: '*', input: 9e5}]}\n",
		k, c.provider, c.model)))
	if err != nil {
		t.Fatal(err)
	}
	credentials, err := credential.Parse("c.yaml", []byte(
		"credentials: [{name: key, source: 'env:KIND_KEY'}, {name: aws, source: aws}]"))
	if err != nil {
		t.Fatal(err)
	}
	return newKindLabOf(t, "the", Described{credentials, providers}, b, nil, nil)
}

// newKindLabOf returns a lab with one of the described providers. Its server has a certificate of example.com where
// none is given.
func newKindLabOf(t *testing.T, name string, d Described, b cove.Budget, certificates *tls.Config,
	roots *x509.CertPool) *kindLab {
	t.Helper()
	t.Setenv("KIND_KEY", canaryKey)
	t.Setenv("AWS_ACCESS_KEY_ID", canaryAWS.ID)
	t.Setenv("AWS_SECRET_ACCESS_KEY", canaryAWS.Secret)
	t.Setenv("AWS_SESSION_TOKEN", canaryAWS.Session)
	script, err := modeltest.Parse("script", []byte(`prompts: [{turns: [{say: "The key is `+canaryKey+
		`, said the model.", usage: {input: 30, output: 12, cache_read: 8}}]}, `+
		`{when: spend much, turns: [{say: "yes", usage: {input: 500000000, output: 12}}]}]`))
	if err != nil {
		t.Fatal(err)
	}
	l := &kindLab{models: modeltest.New(modeltest.Options{Script: script, Keys: []string{canaryKey}})}
	l.server = httptest.NewUnstartedServer(http.HandlerFunc(l.serve))
	l.server.TLS = certificates
	l.server.StartTLS()
	if roots == nil {
		roots = l.server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	}
	t.Cleanup(l.server.Close)
	log := slog.New(slog.DiscardHandler)
	g := New(Options{Dir: t.TempDir(), Clock: clock.Real(), Log: log, Spool: t.TempDir(),
		Described: func() (Described, error) { return d, nil },
		Recorder: NewRecorder(RecorderOptions{Store: store.NewVault(&page{}), Keep: 100, Clock: clock.Real(), Log: log,
			Observe: func(d decision.Decision) { l.mu.Lock(); defer l.mu.Unlock(); l.taken = append(l.taken, d) }})})
	t.Cleanup(g.Close)
	l.route, err = g.Open(Spec{Sandbox: cove.NewSandboxID(), Owner: cove.MachineOwner(), Name: "test",
		Providers: []string{name}, Budget: b})
	if err != nil {
		t.Fatal(err)
	}
	l.route.proxy.Shut()
	l.route.proxy.Close()
	l.route.proxy = proxy.New(proxyView{l.route}, proxy.Options{Dialer: &gitServer{Server: l.server}, Log: log,
		Roots: roots})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.route.ServeProxy(listener)
	l.client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: listener.Addr().String()})}}
	return l
}

// serve checks a signature where it is one, as AWS does, and answers as the model.
func (l *kindLab) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if strings.HasPrefix(r.URL.Path, "/model/") {
		if err == nil {
			err = canaryAWS.Check(r, body, "eu-west-1", "bedrock")
		}
		r.Header.Set("X-Api-Key", canaryKey)
	}
	for name, values := range r.Header {
		if strings.Contains(strings.Join(values, " "), "placeholder") {
			err = fmt.Errorf("%s: %s", name, values)
		}
	}
	if strings.Contains(r.URL.RawQuery, "placeholder") {
		err = fmt.Errorf("the query %s", r.URL.RawQuery)
	}
	if err != nil {
		l.mu.Lock()
		l.problems = append(l.problems, err)
		l.mu.Unlock()
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	l.models.ServeHTTP(w, r)
}

// ask sends a request as the sandbox's client does, with placeholders in all places.
func (l *kindLab) ask(t *testing.T, path, body string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		"http://"+policy.GatewayService+gatewayPath+"/"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"X-Api-Key", "X-Goog-Api-Key"}
	if strings.HasPrefix(path, "model/") {
		names = append(names, "X-Amz-Security-Token", "X-Amz-Date", "X-Amz-Content-Sha256")
	}
	for _, name := range names {
		r.Header.Set(name, "placeholder")
	}
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=placeholder, SignedHeaders=host, Signature=0")
	r.Header.Set("Content-Type", "application/json")
	res, err := l.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body) // a frame that was redacted is broken off, or not
	return res.StatusCode, string(text)
}

// TestKinds: each kind of provider is asked with its key in its place and none of the sandbox's, counted by its prices,
// held to its models, redacted, recorded, and ended at the budget in its own words.
func TestKinds(t *testing.T) {
	for _, k := range model.Kinds {
		t.Run(string(k), func(t *testing.T) {
			c, ok := kindCases[k]
			if !ok {
				t.Fatal("the kind has no case")
			}
			l := newKindLab(t, k, c, cove.Budget{Requests: 1, Cost: 1000})
			another := strings.NewReplacer("small", "large").Replace
			if status, answer := l.ask(t, another(c.path), another(c.body)); status != http.StatusForbidden ||
				!strings.Contains(answer, "none of the provider the's") {
				t.Errorf("another model: %d %s", status, answer)
			}
			status, answer := l.ask(t, c.path, c.body)
			if status != http.StatusOK || strings.Contains(answer, canaryKey) {
				t.Errorf("%d %s", status, answer)
			}
			status, answer = l.ask(t, c.path, c.body)
			if status != http.StatusTooManyRequests || !strings.Contains(answer, c.refused) ||
				!strings.Contains(answer, "1 of 1 requests") || !json.Valid([]byte(answer)) {
				t.Errorf("beyond the budget: %d %s", status, answer)
			}
			if got := len(l.models.Requests()); got != 1 {
				t.Errorf("%d requests have reached the model", got)
			}
			l.route.Shut()
			used := l.route.Models()
			want := model.Usage{Requests: 1, Input: 30, Output: 12, CacheRead: 8, Cost: (30*1000 + 12*10000 + 8*500) / 1e6}
			if len(used) != 1 || used[0].Usage != want {
				t.Errorf("%+v, want %+v", used, want)
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			for _, p := range l.problems {
				t.Error(p)
			}
			var stages []string
			for _, d := range l.taken {
				stages = append(stages, fmt.Sprintf("%s %s %d", d.Stage, d.Verdict, d.Status))
			}
			if got := strings.Join(stages, ", "); got != "budget deny 403, upstream allow 200, budget deny 429" {
				t.Errorf("recorded: %s", got)
			}
		})
	}
}

// TestSignedBodies: a body of any size is signed and arrives as it was, one that is too large does not, and what AWS
// says of its keys is known.
func TestSignedBodies(t *testing.T) {
	c := kindCases[model.Bedrock]
	l := newKindLab(t, model.Bedrock, c, cove.Budget{})
	for _, size := range []int{10, maxInMemory - 100, maxInMemory, maxInMemory + 1, 3 << 20} {
		body := strings.Replace(c.body, `"hi"`, `"hi`+strings.Repeat("x", size)+`"`, 1)
		if status, answer := l.ask(t, c.path, body); status != http.StatusOK {
			t.Errorf("%d bytes: %d %.300s", size, status, answer)
		}
		all := l.models.Requests()
		if len(all) == 0 || all[len(all)-1].Body != body {
			t.Errorf("%d bytes: another body has arrived", size)
		}
	}
	if status, answer := l.ask(t, c.path, strings.Repeat(" ", maxSigned+1)); status != http.StatusRequestEntityTooLarge {
		t.Errorf("too large: %d %.300s", status, answer)
	}
	if why, _ := l.route.Providers().Of("the"); why != nil {
		t.Errorf("a body that is too large is taken for a refusal: %v", why)
	}
	if n := len(l.route.bodies.places); n != 0 {
		t.Errorf("%d places are not given back", n)
	}
	for _, p := range l.problems {
		t.Error(p)
	}
}

// TestPrivateServer: a server of models at an address, without TLS, gets its key at exactly that address and port, in
// requests of the gateway's; a credential that names hosts is not set there.
func TestPrivateServer(t *testing.T) {
	t.Setenv("KIND_KEY", canaryKey)
	for base, host := range map[string]string{
		"http://127.0.0.1:8000/v1": policy.HostService, "http://localhost:8000/v1": policy.HostService,
		"http://10.1.2.3:8000/v1": "10.1.2.3", "https://10.1.2.3:8000/v1": "10.1.2.3",
		"http://[fd00::7]:8000/v1": "[fd00::7]"} {
		providers, err := model.Parse("p.yaml", []byte(
			"providers: [{name: the, kind: openai, base_url: '"+base+"', credential: key}]"))
		if err != nil {
			t.Fatal(err)
		}
		open := func(credentials string) (*Route, error) {
			described, err := credential.Parse("c.yaml", []byte(
				"credentials: [{name: key, source: 'env:KIND_KEY'"+credentials+"}]"))
			if err != nil {
				t.Fatal(err)
			}
			g := New(Options{Dir: t.TempDir(), Clock: clock.Real(), Log: slog.New(slog.DiscardHandler),
				Described: func() (Described, error) { return Described{described, providers}, nil }})
			t.Cleanup(g.Close)
			return g.Open(Spec{Sandbox: cove.NewSandboxID(), Owner: cove.MachineOwner(), Providers: []string{"the"}})
		}
		w, err := open("")
		if err != nil {
			t.Fatal(err)
		}
		p := w.models.providers[0]
		name, port := p.Host()
		request := policy.Request{Layer: policy.LayerHTTP, Host: name, Port: port, Method: "POST",
			Path: "/v1/chat/completions", Endpoint: true}
		scheme, _, _ := strings.Cut(base, ":")
		h := httptest.NewRequestWithContext(context.Background(), "POST", scheme+"://"+host+":8000/v1/chat/completions", nil)
		passage, err := enter(p.pipeline, request, h)
		if err != nil || h.Header.Get("Authorization") != "Bearer "+canaryKey {
			t.Errorf("%s: %v %v", base, err, h.Header)
		} else {
			passage.End(nil)
		}
		if v := w.judge(request); v.Action != policy.Allow {
			t.Errorf("%s: %+v", base, v)
		}
		dial := request
		dial.Layer, dial.Address = policy.LayerDial, netip.MustParseAddr("127.0.0.1")
		if a, ok := name.Addr(); ok {
			dial.Address = a
		}
		if v := w.judge(dial); v.Action != policy.Allow {
			t.Errorf("%s: %s: %+v", base, dial.Address, v)
		}
		for what, change := range map[string]func(*policy.Request){
			"another port":      func(r *policy.Request) { r.Port = 8001 },
			"another address":   func(r *policy.Request) { r.Address = netip.MustParseAddr("10.1.2.4") },
			"asked by a client": func(r *policy.Request) { r.Endpoint = false },
			"another path":      func(r *policy.Request) { r.Layer, r.Path = policy.LayerHTTP, "/admin" },
		} {
			changed := dial
			if change(&changed); what == "another address" && changed.Address == dial.Address {
				continue
			}
			if v := w.judge(changed); v.Action == policy.Allow {
				t.Errorf("%s: %s is allowed: %+v", base, what, v)
			}
		}
		if scheme == "http" {
			if _, err := open(
				", to: [{form: bearer, hosts: models.example.com}]"); cove.ErrorCode(err) != cove.InvalidArgument ||
				!strings.Contains(cove.ErrorHint(err), "leave to out") {
				t.Errorf("%s, with a credential of its own place: %v", base, err)
			}
		}
	}
	g := New(Options{Dir: t.TempDir(), Clock: clock.Real(), Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(g.Close)
	if _, err := g.Open(Spec{Sandbox: cove.NewSandboxID(), Credentials: []string{"vertex"}}); cove.ErrorCode(
		err) != cove.InvalidArgument || !strings.Contains(err.Error(), "bound to no host") {
		t.Errorf("a credential that is for providers: %v", err)
	}
}
