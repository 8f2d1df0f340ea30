//go:build linux

package egress

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// serveModels are two providers. Each says which key it got, and what was used.
func (l *lab) serveModels() {
	answer := func(key func(*http.Request) string, whole string, events ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			var asked struct {
				Model  string
				Stream bool
			}
			body, _ := io.ReadAll(r.Body)
			if err := json.Unmarshal(body, &asked); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			w.Header().Set("X-Key", key(r))
			if !asked.Stream {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, whole, asked.Model, key(r))
				return
			}
			w.Header().Set("Content-Type", "text/event-stream")
			for _, e := range events {
				fmt.Fprintf(w, "data: %s\n\n", e)
				http.NewResponseController(w).Flush()
			}
		}
	}
	bearer := func(r *http.Request) string { return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ") }
	anthropic, openai, other := http.NewServeMux(), http.NewServeMux(), http.NewServeMux()
	anthropic.HandleFunc("POST /v1/messages", answer(func(r *http.Request) string { return r.Header.Get("X-Api-Key") },
		`{"model":%q,"content":[{"type":"text","text":%q}],"usage":{"input_tokens":1000,"output_tokens":100,"cache_read_input_tokens":10000}}`,
		`{"type":"message_start","message":{"model":"claude-x","usage":{"input_tokens":2000,"output_tokens":1}}}`,
		`{"type":"content_block_delta"}`,
		`{"type":"message_delta","usage":{"output_tokens":50}}`, `{"type":"message_stop"}`))
	anthropic.HandleFunc("GET /v1/models", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"data":[{"id":"claude-x"}],"version":%q}`, r.Header.Get("Anthropic-Version"))
	})
	anthropic.HandleFunc("POST /v1/files", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "files") })
	chat := answer(bearer,
		`{"model":%q,"choices":[{"message":{"content":%q}}],"usage":{"prompt_tokens":30,"completion_tokens":10,"prompt_tokens_details":{"cached_tokens":20}}}`,
		`{"choices":[{"delta":{"content":"a"}}]}`, `{"choices":[{"delta":{"content":"b"}}]}`, "[DONE]")
	openai.HandleFunc("POST /v1/chat/completions", chat)
	openai.HandleFunc("POST /v1/responses", answer(bearer,
		`{"model":%q,"text":%q,"usage":{"input_tokens":5,"output_tokens":6}}`,
		`{"type":"response.completed","response":{"usage":{"input_tokens":7,"output_tokens":8}}}`))
	openai.HandleFunc("POST /v1/embeddings", answer(bearer,
		`{"model":%q,"key":%q,"usage":{"prompt_tokens":4,"total_tokens":4}}`))
	other.HandleFunc("POST /v2/chat/completions", chat)
	l.Site("api.anthropic.com", anthropic)
	l.Site("api.openai.com", openai)
	l.Site("other.lab.test", other)
}

// asking defines ask PATH BODY [CURL ARGUMENTS], for scripts.
const asking = `G=http://gateway.cove.internal/proxy/v1
ask() { p=$1; b=$2; shift 2; curl -sS --max-time 20 -w '\n%{http_code}\n' -H 'Content-Type: application/json' -d "$b" "$@" $G/$p; }
hello='{"model":"claude-x","messages":[]}'
`

// TestModels: what is asked of the gateway's endpoints arrives at the provider
// with the key, on every way to the gateway; and what was used is counted.
func TestModels(t *testing.T) {
	l := newLab(t)
	l.serveModels()
	got := l.inside(t, asking+`
echo "$ANTHROPIC_BASE_URL $OPENAI_BASE_URL ${ANTHROPIC_API_KEY:0:7} ${OPENAI_API_KEY:0:8}"
ask messages "$hello" -H "x-api-key: $ANTHROPIC_API_KEY" -i | grep -v '^Date'
ask messages "$hello" --noproxy '*'
ask messages "$hello" --noproxy '*' -6 -o /dev/null
G=http://127.0.0.1:3128/proxy/v1 ask messages "$hello" --noproxy '*' -o /dev/null
ask messages '{"model":"claude-x","stream":true}' -N
ask chat/completions '{"model":"gpt-x"}'
ask chat/completions '{"model":"gpt-x","stream":true}' --compressed
ask responses '{"model":"gpt-x","stream":true}' -o /dev/null
ask embeddings '{"model":"e"}' -o /dev/null
curl -sS --max-time 20 $G/models; echo
/usr/bin/python3 - <<'EOF'
import json, os, urllib.request
for proxies in ({}, None):
    o = urllib.request.build_opener(urllib.request.ProxyHandler(proxies) if proxies is not None else urllib.request.ProxyHandler())
    r = urllib.request.Request(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages?beta=true", json.dumps({"model": "claude-y"}).encode(), {"x-api-key": os.environ["ANTHROPIC_API_KEY"]})
    print(json.load(o.open(r, timeout=20))["model"])
EOF
env | grep -a canary; cat /proc/*/environ 2>/dev/null | grep -a canary`, "--model-provider", "anthropic", "--model-provider", "openai")
	for _, want := range []string{
		"http://gateway.cove.internal/proxy http://gateway.cove.internal/proxy/v1 sk-ant- sk-proj-\n",
		`"cache_read_input_tokens":10000}}` + "\n200\n", `data: {"type":"message_delta","usage":{"output_tokens":50}}` +
			"\n\n", "data: [DONE]\n\n\n200\n",
		`{"data":[{"id":"claude-x"}],"version":"2023-06-01"}`, "claude-y\nclaude-y\n",
	} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("no %q", want)
		}
	}
	if strings.Contains(got.stdout, "canary") || strings.Count(got.stdout, "200\n") < 9 {
		t.Error("what came back is wrong")
	}
	// anthropic: 4+2 whole ones, 1 stream; openai: chat, a stream that does not say, responses, embeddings
	want := fmt.Sprintf("models: anthropic 7 requests, %d tokens in (60000 from cache), 650 out, $%.4f; openai 4 "+
		"requests, %d tokens in (20 from cache), 21 out (estimated)",
		6*1000+2000+60000, (8000*3+650*15+60000*0.3)/1e6, 30+len(`{"model":"gpt-x","stream":true}`)/4+1+7+4)
	if !strings.Contains(got.stderr, want) {
		t.Errorf("want %s", want)
	}
	for _, r := range l.Requests() {
		for _, name := range []string{"X-Api-Key", "Authorization"} {
			if v := r.Header.Get(name); v != "" && strings.TrimPrefix(v, "Bearer ") != key {
				t.Errorf("%s with %s %q", r, name, v)
			}
		}
		if r.Header.Get("X-Cove-Provider")+r.Header.Get("X-Cove-Profile") != "" {
			t.Errorf("%s with a profile", r)
		}
	}
	if t.Failed() {
		t.Logf("%+v\n%q", got, l.seen())
	}
}

// TestModelsAreAllThereIs: nothing else is at the gateway's name, and what the gateway may ask the sandbox may not.
func TestModelsAreAllThereIs(t *testing.T) {
	l := newLab(t)
	l.serveModels()
	got := l.inside(t, asking+`
for u in http://gateway.cove.internal/{,metrics,health,proxy,proxy/v1,proxy/v1/,proxy/v1/files,proxy/v1/messages/batches,executions,proxy/v1/keys,proxy/v1/models/x} http://127.0.0.1:3128/metrics; do
  curl -sS --noproxy '*' --max-time 20 -o /dev/null -w '%{http_code} ' $u; done; echo
for u in http://gateway.cove.internal:{8080,443,3128,3129,53}/proxy/v1/models http://other.cove.internal/proxy/v1/models; do curl -sS --max-time 20 -o /dev/null -w '%{http_code} ' $u; done; echo
curl -sS --max-time 20 https://gateway.cove.internal/proxy/v1/models 2>/dev/null; echo "tls $?"
curl -sS --max-time 20 -o /dev/null -w '%{http_code}\n' https://api.anthropic.com/v1/models; echo "direct $?"
curl -sS --max-time 20 -o /dev/null -w '%{http_code} ' -X POST -d x $G/../v1/messages --path-as-is; curl -sS --max-time 20 -o /dev/null -w '%{http_code} ' -X DELETE $G/messages
curl -sS --max-time 20 -o /dev/null -w '%{http_code}\n' -H 'Connection: Upgrade' -H 'Upgrade: websocket' -H 'Sec-WebSocket-Version: 13' -H 'Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==' $G/responses
ask messages '{"model":"claude-x","model":"gpt-x"}'
ask chat/completions '{"model":"gpt-x"}' -H 'X-Cove-Provider: openai'
ask chat/completions '{"model":"gpt-x"}' -H 'X-Cove-Provider: anthropic'
ask chat/completions '{"model":"gpt-x"}' -H 'X-Cove-Profile: other' -o /dev/null
ask messages "$hello" -H 'X-Cove-Profile: nobody'`, "--model-provider", "anthropic,other")
	lines := strings.Split(got.stdout, "\n")
	for i, want := range []string{strings.Repeat("404 ", 12), strings.Repeat("403 ", 6), "tls ", "403", "direct 0",
		"400 405 426"} {
		if i >= len(lines) || !strings.HasPrefix(lines[i], want) || want == "tls " && lines[i] == "tls 0" {
			t.Errorf("line %d is not %q", i, want)
		}
	}
	for _, want := range []string{
		`{"type":"error","error":{"type":"permission_error","message":"the model \"gpt-x\" is none of the provider anthropic's that may be used: claude-*"}}` + "\n\n403\n",
		`"message":"this sandbox may not use the provider \"openai\"; it may use anthropic, other","code":"permission_denied"}}` + "\n\n403\n",
		"the provider anthropic has no chat/completions; it has messages, messages/count_tokens, models",
		`{"type":"error","error":{"type":"permission_error","message":"this sandbox may not use the provider \"nobody\"; it may use anthropic, other"}}`,
	} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("no %q", want)
		}
	}
	if seen := slices.DeleteFunc(l.seen(),
		func(s string) bool { return s == "POST other.lab.test/v2/chat/completions" }); len(seen) > 0 {
		t.Errorf("arrived: %q", seen)
	}
	if t.Failed() {
		t.Logf("%+v", got)
	}
	got = l.inside(t, asking+`getent hosts gateway.cove.internal; ask messages "$hello"; echo "[$ANTHROPIC_BASE_URL]"`,
		"--allow", "good.lab.test")
	if !strings.HasPrefix(got.stdout, "{\n") || !strings.Contains(got.stdout, "\n403\n[]\n") {
		t.Errorf("without a provider: %+v", got)
	}
	got = l.inside(t, asking+`ask messages "$hello"; ask chat/completions "{}" -o /dev/null`, "--model-provider",
		"anthropic,other", "--deny", "gateway.cove.internal")
	if strings.Count(got.stdout, "\n403\n") != 2 {
		t.Errorf("denied: %+v", got)
	}
	got = l.inside(t, asking+`ask messages "$hello"; ask chat/completions "{}" -o /dev/null`, "--model-provider",
		"anthropic,other", "--deny", "api.anthropic.com")
	if strings.Count(got.stdout, "\n403\n") != 1 || strings.Count(got.stdout, "\n200\n") != 1 {
		t.Errorf("a denied provider: %+v", got)
	}
}

// TestModelBudget: what a sandbox may use ends where it was said, for its own
// requests to the provider too, and another sandbox has its own.
func TestModelBudget(t *testing.T) {
	l := newLab(t)
	l.serveModels()
	const exhausted = `{"type":"error","error":{"type":"rate_limit_error","message":"the budget of this sandbox is used up: `
	got := l.inside(t, asking+`ask messages "$hello" -o /dev/null
curl -sS --max-time 20 -o /dev/null -w '%{http_code}\n' -H 'Content-Type: application/json' -d "$hello" https://api.anthropic.com/v1/messages
ask messages "$hello" -i
curl -sS --max-time 20 -d "$hello" https://api.anthropic.com/v1/messages; curl -sS --max-time 20 -o /dev/null -w '%{http_code}\n' $G/models`,
		"--model-provider", "anthropic", "--budget", "requests=2", "--allow", "api.anthropic.com", "--credential", "anthropic")
	if strings.Count(got.stdout, "200\n") != 3 || strings.Count(got.stdout, exhausted+`2 of 2 requests"}`) != 2 || !strings.Contains(got.stdout, "X-Should-Retry: false\r\n") {
		t.Errorf("requests: %+v", got)
	}
	for budget, want := range map[string]string{"tokens=20000": "22200 of 20000 tokens", "cost=0.01": "0.015 of 0.01 dollars"} {
		l.Forget()
		got = l.inside(t, asking+`for i in 1 2 3 4; do ask messages "$hello"; done; for i in 1 2 3 4 5; do ask messages "$hello" & done; wait`, "--model-provider", "anthropic", "--budget", budget)
		if strings.Count(got.stdout, "\n200\n") != 2 || !strings.Contains(got.stdout, exhausted+want) || strings.Count(got.stdout, "\n429\n") != 7 || len(l.seen()) != 2 {
			t.Errorf("%s: %+v", budget, got)
		}
	}
	if got := l.inside(t, "true", "--model-provider", "other", "--budget", "cost=1"); got.code == 0 || !strings.Contains(got.stderr, "prices") {
		t.Errorf("a budget of an unknown cost: %+v", got)
	}
	if got := l.inside(t, "true", "--budget", "requests=1"); got.code == 0 || !strings.Contains(got.stderr, "--model-provider") {
		t.Errorf("a budget of nothing: %+v", got)
	}
	if got := l.inside(t, "true", "--model-provider", "nobody"); got.code == 0 || !strings.Contains(got.stderr, "openrouter") {
		t.Errorf("a provider that is not there: %+v", got)
	}
	got = l.inside(t, asking+`ask messages "$hello" -o /dev/null`, "--model-provider", "anthropic", "--json")
	var e struct {
		Models []map[string]any
	}
	if err := json.Unmarshal([]byte(got.stdout), &e); err != nil || len(e.Models) != 1 || e.Models[0]["requests"] != 1.0 || e.Models[0]["cache_read_tokens"] != 10000.0 {
		t.Errorf("%v %+v", err, got)
	}
}

// TestModelStream: each event is there as soon as the provider has sent it, with
// the key searched for and what was used counted.
func TestModelStream(t *testing.T) {
	l := newLab(t)
	read := make(chan struct{}, 3)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/messages", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: {\"type\":\"message_delta\",\"usage\":{\"input_tokens\":5,\"output_tokens\":%d}}\n\n", i+1)
			http.NewResponseController(w).Flush()
			select { // the next one is sent when this one has been read
			case <-read:
			case <-r.Context().Done():
				return
			}
		}
	})
	mux.HandleFunc("GET /v1/models", func(http.ResponseWriter, *http.Request) { read <- struct{}{} })
	l.Site("api.anthropic.com", mux)
	got := l.inside(t, asking+`curl -sSN --max-time 50 -d "$hello" $G/messages | while read -r line; do test -z "$line" || { echo "$line"; curl -sS --max-time 20 $G/models; }; done`, "--model-provider", "anthropic")
	if strings.Count(got.stdout, "message_delta") != 3 || !strings.Contains(got.stderr, "anthropic 1 request, 5 tokens in, 3 out") {
		t.Errorf("%+v", got)
	}
}

// TestModelsOfClients: clients of a gateway of its own have models and budgets, too.
func TestModelsOfClients(t *testing.T) {
	l := newLab(t)
	l.serveModels()
	l.gateway(t)
	added := l.cove(t, "gateway", "add", "agent", "--model-provider", "anthropic", "--budget", "requests=1", "--env")
	if added.code != 0 {
		t.Fatalf("%+v", added)
	}
	got := client(t, added.stdout, asking+`ask messages "$hello"; G=$HTTP_PROXY/proxy/v1 ask messages "$hello" --noproxy '*'`)
	if strings.Count(got.stdout, "\n200\n") != 1 || !strings.Contains(got.stdout, "1 of 1 requests") || strings.Contains(got.stdout, "canary") {
		t.Errorf("%+v", got)
	}
	if got := l.cove(t, "gateway", "list", "--json"); !strings.Contains(got.stdout, `"cache_read_tokens": 10000`) && !strings.Contains(got.stdout, `"cache_read_tokens":10000`) {
		t.Errorf("%+v", got)
	}
}

// TestGitCredentials: git needs no key to fetch, and who asks for one gets a
// placeholder that is good for nothing but through the gateway.
func TestGitCredentials(t *testing.T) {
	need(t, "/usr/bin/git")
	l := newLab(t)
	_, backend, _ := l.repository(t)
	l.Site("git.lab.test", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if user != "robot" || password != key {
			w.Header().Set("WWW-Authenticate", `Basic realm="lab"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	}))
	got := l.inside(t, `cd /tmp; export HOME=/tmp GIT_TERMINAL_PROMPT=0
git clone -q https://git.lab.test/repo.git a && echo cloned
git ls-remote -q "https://robot:$LAB_GIT@git.lab.test/repo.git" | cut -f 2
E=http://gateway.cove.internal/proxy/v1/git/credentials
fill() { printf "$1" | curl -sS --max-time 20 -w '[%{http_code}]\n' --data-binary @- "$E$2"; }
fill 'capability[]=authtype\nprotocol=https\nhost=git.lab.test\npath=repo.git\nwwwauth[]=Basic realm="lab"\n\n' | sed "s/$LAB_GIT/PLACEHOLDER/"
fill 'protocol=https\nhost=good.lab.test\n\n'
fill 'protocol=http\nhost=git.lab.test\n\n'
fill 'protocol=https\nhost=git.lab.test\nusername=robot\npassword=x\n\n' '?operation=store'
fill 'protocol=https\nhost=git.lab.test\n\n' '?operation=erase'
git config --global credential.helper '!f() { test "$1" = get && curl -sS --data-binary @- '$E'; }; f'
printf 'protocol=https\nhost=git.lab.test\n' | git credential fill | sed "s/$LAB_GIT/PLACEHOLDER/"
printf 'url=https://robot:x@git.lab.test/' | git credential approve && echo approved
grep -r canary /tmp a 2>/dev/null`, "--credential", "gitlab", "--allow", "git.lab.test", "--allow", "good.lab.test")
	want := "cloned\nHEAD\nrefs/heads/main\nusername=robot\npassword=PLACEHOLDER\n[200]\n[200]\n[200]\n[200]\n[200]\n" +
		"protocol=https\nhost=git.lab.test\nusername=robot\npassword=PLACEHOLDER\napproved\n"
	if got.stdout != want {
		t.Errorf("%+v, want %q", got, want)
	}
	got = l.inside(t, `cd /tmp; HOME=/tmp GIT_TERMINAL_PROMPT=0 git clone -q https://git.lab.test/repo.git a; curl -sS -d 'x' -o /dev/null -w '%{http_code}' http://gateway.cove.internal/proxy/v1/git/credentials`, "--allow", "git.lab.test")
	if !strings.Contains(got.stderr, "could not read Username") || got.stdout != "403" {
		t.Errorf("without the credential: %+v", got)
	}
}
