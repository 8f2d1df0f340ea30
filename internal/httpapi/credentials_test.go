package httpapi

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/credential"
)

// noCredentials are those of a machine whose owner describes none.
func noCredentials() credential.Host {
	return credential.Host{Own: func() ([]credential.Credential, error) { return nil, nil },
		Values: credential.NewValues(clock.Real()), TakesVariables: true}
}

// TestCredentials: the machine's owner learns what there is of credentials, never their values, and hands variables
// over.
func TestCredentials(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "sk-of-the-server-alone")
	h := start(t, withKeys)
	listed := h.do(h.owner, "GET", "/credentials", "")
	all := decode[api.CredentialList](t, listed, http.StatusOK)
	i := slices.IndexFunc(all.Credentials, func(c api.Credential) bool { return c.Name == "openai" })
	if i < 0 || all.Credentials[i].State != "ready" || all.Credentials[i].From != "env:OPENAI_API_KEY" ||
		!slices.Contains(all.Reads, "OPENAI_API_KEY") {
		t.Errorf("%+v", all)
	}
	health := decode[api.Health](t, h.do(h.owner, "GET", "/health", ""), http.StatusOK)
	if !slices.Equal(health.Reads, all.Reads) {
		t.Errorf("the server reads %v", health.Reads)
	}
	keyed := h.do(h.client, "GET", "/health", "", "X-API-Key", "cove_right")
	if of := decode[api.Health](t, keyed, http.StatusOK); of.Reads != nil {
		t.Errorf("a key is told what the server reads: %v", of.Reads)
	}
	given := `{"variables":{"OPENAI_API_KEY":"sk-of-the-shell-alone"}}`
	taken := decode[api.CredentialsTaken](t, h.do(h.owner, "PUT", "/credentials/environment", given), http.StatusOK)
	if !slices.Equal(taken.Changed, []string{"OPENAI_API_KEY"}) ||
		os.Getenv("OPENAI_API_KEY") != "sk-of-the-shell-alone" {
		t.Errorf("%+v", taken)
	}
	unread := h.do(h.owner, "PUT", "/credentials/environment", `{"variables":{"LD_PRELOAD":"/tmp/x.so"}}`)
	if unread.StatusCode != http.StatusBadRequest || os.Getenv("LD_PRELOAD") != "" {
		t.Errorf("a variable that no credential reads: %s", unread.body)
	}
	if text := listed.body + h.log.String(); strings.Contains(text, "sk-of-the") {
		t.Errorf("a value is told: %s", text)
	}
	if d := decode[api.SettingDigests](t, h.do(h.owner, "GET", "/settings", ""), http.StatusOK); len(d.Digests) != 1 {
		t.Errorf("%+v", d)
	}
}
