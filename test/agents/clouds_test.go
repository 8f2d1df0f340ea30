//go:build linux

package agents

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/test/modeltest"
)

// keysOfAWS are what the program prints from which the lab's credential reads them.
var keysOfAWS = modeltest.AWSKeys{ID: "AKIALAB0CANARY", Secret: key + "/aws+secret", Session: key + "/aws+session=="}

const cloudTurns = `
aside: A title
prompts:
  - turns:
      - say: I look.
        usage: {input: 100, output: 10, cache_read: 1000}
        do: [{shell: "echo $ENV >seen; env | grep -c canary; true"}]
      - say: It is done.
        usage: {input: 20, output: 2, cache_read: 1000}
`

// TestClouds: Claude Code works with Bedrock and Vertex AI, and Gemini CLI with Gemini, as they are, keyless: the
// gateway signs the requests, or sets the token, of the provider's region and project; it counts what is used, and ends
// it at the budget, whichever it is.
func TestClouds(t *testing.T) {
	l := newLab(t, cloudTurns)
	l.Site("bedrock-runtime.eu-west-1.amazonaws.com", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = keysOfAWS.Check(r, body, "eu-west-1", "bedrock")
		}
		if err != nil {
			t.Errorf("%s %s: %v", r.Method, r.RequestURI, err)
			w.Header().Set("X-Amzn-Errortype", "InvalidSignatureException")
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprintf(w, `{"message":"no"}`)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		r.Header.Set("X-Api-Key", key)
		l.models.ServeHTTP(w, r)
	}))
	for _, host := range []string{"europe-west1-aiplatform.googleapis.com", "generativelanguage.googleapis.com"} {
		l.Site(host, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if vertex := strings.HasPrefix(host, "europe"); vertex != strings.Contains(r.URL.Path,
				"/projects/lab-project/locations/europe-west1/publishers/") {
				t.Errorf("%s was asked for %s", host, r.URL.Path)
			}
			l.models.ServeHTTP(w, r)
		}))
	}
	signer := l.write(t, "keys.sh", fmt.Sprintf("#!/bin/sh\necho '"+
		`{"Version":1,"AccessKeyId":%q,"SecretAccessKey":%q,"SessionToken":%q,"Expiration":"2099-01-01T00:00:00Z"}`+
		"'\n", keysOfAWS.ID, keysOfAWS.Secret, keysOfAWS.Session))
	token := l.write(t, "token.sh", "#!/bin/sh\necho "+key+"\n")
	for _, path := range []string{signer, token} {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const price = "prices: [{models: '*', input: 1, output: 10, cache_read: 0.1}]"
	providers := l.write(t, "providers.yaml", `providers:
  - {name: bedrock, kind: bedrock, region: eu-west-1, `+price+`}
  - {name: vertex, kind: vertex, region: europe-west1, project: lab-project, `+price+`}
  - {name: gemini, `+price+`}
`)
	credentials := l.write(t, "credentials.yaml", `credentials:
  - {name: bedrock, source: [command, `+signer+`], variables: [AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY]}
  - {name: vertex, source: [command, `+token+`]}
`)
	config := filepath.Join(l.dir, "cove.yaml")
	text, err := os.ReadFile(config)
	if err == nil {
		err = os.WriteFile(config, append(text, "  providers: "+providers+"\n  credentials: "+credentials+"\n"...), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args []string
		same string // what shows the same, and is enough unless COVE_TEST_LONG is set
	}{
		{"claude at Bedrock", []string{"claude", "--model-provider", "bedrock", "--model",
			"eu.anthropic.claude-sonnet-4-5-20250929-v1:0"}, ""},
		{"claude at Vertex AI", []string{"claude", "--model-provider", "vertex", "--model",
			"claude-sonnet-4-5@20250929"}, "gemini has the provider, and TestKinds of internal/gateway Claude's requests to it"},
		{"gemini at the gateway", []string{"gemini", "--model-provider", "gemini", "--model", "gemini-2.5-pro"},
			"TestOthers has the agent, and TestKinds of internal/gateway the budget"},
		{"gemini at Vertex AI", []string{"gemini", "--model-provider", "vertex", "--model", "gemini-2.5-pro"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.same != "" && os.Getenv("COVE_TEST_LONG") == "" {
				t.Skip(c.same + ": set COVE_TEST_LONG=1")
			}
			l.Forget()
			l.models.Forget()
			dir := l.project(t, "project-"+strings.ReplaceAll(c.name, " ", "-"))
			got := l.cove(t, dir, append(c.args, "--quiet", "--budget", "requests=100,tokens=100000,cost=1", "look")...)
			if got.code != 0 || got.stdout != "It is done.\n" {
				t.Fatalf("%+v", got)
			}
			if run := l.last(t); run.Status != api.RunSucceeded {
				t.Errorf("%+v", run)
			}
			if len(l.models.Requests()) == 0 {
				t.Error("no model was asked")
			}
			for _, r := range l.models.Requests() {
				if r.Problem != "" || r.Status >= 400 {
					t.Errorf("%s %s: %d %s", r.Method, r.Path, r.Status, r.Problem)
				}
			}

			// The first answer has used 100 + 10 + 1000 tokens, for 0.0003 dollars. What Claude Code asks beside its work, such
			// as a title, is counted too.
			for _, b := range []struct {
				budget, what string
				least, limit float64
			}{{"requests=1", "requests", 1, 1}, {"tokens=1000", "tokens", 1110, 1000},
				{"cost=0.0002", "dollars", 0.0003, 0.0002}} {
				if c.args[0] == "gemini" && b.what != "tokens" { // it takes its time to give up
					continue
				}
				l.models.Forget()
				got = l.cove(t, dir, append(c.args, "--quiet", "--budget", b.budget, "look")...)
				if n := len(l.models.Requests()); got.code == 0 || n == 0 || n > 3 {
					t.Errorf("%s: %d requests, %+v", b.budget, n, got)
				}
				var used, limit float64
				reason := l.refusedAt(t, l.last(t).Sandbox)
				_, err := fmt.Sscanf(reason, "the budget of this sandbox is used up: %g of %g "+b.what, &used, &limit)
				if err != nil || used < b.least || used > 2*b.least || limit != b.limit {
					t.Errorf("%s: refused for %q", b.budget, reason)
				}
			}
		})
	}
	if n := searchFiles(t, filepath.Join(l.dir, "home"), filepath.Join(l.dir, "run")); n < 10 {
		t.Errorf("the key was looked for in %d files", n)
	}
}

// refusedAt is the reason of the last decision at the stage of budgets.
func (l *lab) refusedAt(t *testing.T, sandbox string) string {
	t.Helper()
	c := l.client(t)
	defer c.Close()
	all, err := c.Decisions(t.Context(), client.DecisionOptions{Sandbox: sandbox, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all.Decisions {
		if d.Stage == "budget" {
			return d.Reason
		}
	}
	return ""
}
