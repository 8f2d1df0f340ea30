package gateway

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/credential"
	"github.com/cove-sandbox/cove/internal/egress/model"
)

// certified returns a certificate for the names of providers, and its pool.
func certified(t *testing.T, names ...string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: names, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, pool
}

const chat = `{"model":"MODEL","messages":[{"role":"user","content":"ASK"}]}`

// builtIn is how a client asks each provider that needs no description but its place, for a known model.
var builtIn = map[string]struct {
	path, model, body string
}{
	"anthropic":  {"v1/messages", "claude-sonnet-4-5-20250929", chat},
	"openai":     {"v1/chat/completions", "gpt-5.4-mini", chat},
	"openrouter": {"v1/chat/completions", "anthropic/claude-sonnet-4.5", chat},
	"gemini": {"v1beta/models/MODEL:generateContent", "gemini-2.5-flash",
		`{"contents":[{"role":"user","parts":[{"text":"ASK"}]}]}`},
	"bedrock": {"model/MODEL/invoke", "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
		`{"anthropic_version":"bedrock-2023-05-31","messages":[{"role":"user","content":"ASK"}]}`},
	"vertex": {"v1/projects/p/locations/eu/publishers/anthropic/models/MODEL:rawPredict", "claude-sonnet-4-5@20250929",
		`{"anthropic_version":"vertex-2023-10-16","messages":[{"role":"user","content":"ASK"}]}`},
}

const places = "providers: [{name: bedrock, kind: bedrock, region: eu-west-1}, " +
	"{name: vertex, kind: vertex, region: eu, project: p}]"

// costsInDocuments returns the budgets in dollars that examples and hints show.
func costsInDocuments(t *testing.T) map[float64]bool {
	t.Helper()
	all := map[float64]bool{}
	form := regexp.MustCompile(`\bcost[=:] ?([0-9]+(?:\.[0-9]+)?)`)
	for _, file := range []string{"docs/profiles.md", "docs/api.md", "docs/cove.example.yaml", "docs/models.md",
		"internal/cli/server/commands.go", "internal/access/grant.go", "internal/egress/model/budget.go"} {
		text, err := os.ReadFile("../../" + file)
		found := form.FindAllStringSubmatch(string(text), -1)
		if err != nil || len(found) == 0 {
			t.Errorf("%s shows no budget in dollars: %v", file, err)
		}
		for _, m := range found {
			cost, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				t.Errorf("%s: %s", file, m[0])
			}
			all[cost] = true
		}
	}
	return all
}

// TestBudgetsOfExamples: each budget in dollars that a document shows lets a request for a known model of each built-in
// provider pass, and refuses the one beyond it as used up. A model whose price is not known is refused in other words,
// which name what to do, and is not asked.
func TestBudgetsOfExamples(t *testing.T) {
	providers, err := model.Parse("p.yaml", []byte(places))
	if err != nil {
		t.Fatal(err)
	}
	var hosts []string
	for _, p := range providers {
		if _, ok := builtIn[p.Name]; !ok {
			t.Errorf("the built-in provider %s has no case", p.Name)
		}
		hosts = append(hosts, p.Base.Hostname())
	}
	certificate, pool := certified(t, hosts...)
	described := "credentials: [{name: bedrock, source: aws}"
	for _, name := range []string{"anthropic", "openai", "openrouter", "gemini", "vertex"} {
		described += ", {name: " + name + ", source: 'env:KIND_KEY'}"
	}
	credentials, err := credential.Parse("c.yaml", []byte(described+"]"))
	if err != nil {
		t.Fatal(err)
	}
	costs := costsInDocuments(t)
	for name, c := range builtIn {
		for cost := range costs {
			t.Run(fmt.Sprintf("%s/%g", name, cost), func(t *testing.T) {
				l := newKindLabOf(t, name, Described{credentials, providers}, cove.Budget{Cost: cost},
					&tls.Config{Certificates: []tls.Certificate{certificate}}, pool)
				ask := func(model, words string) (int, string) {
					fill := strings.NewReplacer("MODEL", strings.ReplaceAll(model, ":", "%3A"))
					if strings.Contains(c.body, "MODEL") {
						fill = strings.NewReplacer("MODEL", model)
					}
					return l.ask(t, fill.Replace(c.path), strings.ReplaceAll(fill.Replace(c.body), "ASK", words))
				}
				for what, words := range map[string]string{"a request": "hi", "a long request": strings.Repeat("x", 3*maxHeld)} {
					status, answer := ask("claude-unheard-of-9", words)
					if status != http.StatusForbidden || !json.Valid([]byte(answer)) || strings.Contains(answer, "used up") ||
						!strings.Contains(answer, "cannot be judged: what the model") ||
						!strings.Contains(answer, "gateway.providers (name: "+name) || !strings.Contains(answer, "price_unknown") {
						t.Errorf("%s to a model of an unknown price: %d %s", what, status, answer)
					}
				}
				for _, words := range []string{"hi", "spend much"} {
					if status, answer := ask(c.model, words); status != http.StatusOK {
						t.Fatalf("%s within the budget: %d %s", words, status, answer)
					}
				}
				status, answer := ask(c.model, "hi")
				if status != http.StatusTooManyRequests || !strings.Contains(answer, "is used up: ") ||
					!strings.Contains(answer, fmt.Sprintf(" of %g dollars", cost)) {
					t.Errorf("beyond the budget: %d %s", status, answer)
				}
				if got := len(l.models.Requests()); got != 2 {
					t.Errorf("%d requests have reached the model", got)
				}
				for _, p := range l.problems {
					t.Error(p)
				}
			})
		}
	}
}
