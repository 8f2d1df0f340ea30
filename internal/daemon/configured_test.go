package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cove-sandbox/cove/internal/config"
	"github.com/cove-sandbox/cove/internal/hostpath"
)

// TestConfiguredPlaces: every file that the configuration names has its place in the rules of mounts.
func TestConfiguredPlaces(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{
		"cove.yaml": "home: " + at("home") + "\nprofiles: " + at("profiles.yaml") + "\ngateway: {credentials: " +
			at("credentials.yaml") + ", providers: " + at("providers.yaml") + ", extra_cas: [" + at("ca") + "]}\nguest: " +
			at("guest") + "\ntls: {cert: " + at("cert") + ", key: " +
			at("tls-key") + "}\n",
		"profiles.yaml": "profiles:\n  - {name: own, agent: claude, access: token-file, token_file: {path: " + at("token") +
			", variable: CLAUDE_CODE_OAUTH_TOKEN}}\n",
		"credentials.yaml": "credentials:\n  - name: tracker\n    source: file:" + at("tracker-key") +
			"\n    to: [{form: bearer, hosts: tracker.test}]\n" +
			"  - {name: other, source: ['command', " + at("asks") + "]}\n",
		"providers.yaml": "",
	} {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	cfg, err := config.Read(config.Source{Path: "cove.yaml", Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	got, err := (&files{cfg: cfg}).places()
	if err != nil {
		t.Fatal(err)
	}
	keys, tokens := []string{at("tls-key"), at("tracker-key")}, []string{at("token")}
	obeyed := []string{at("cove.yaml"), at("profiles.yaml"), at("credentials.yaml"), at("providers.yaml"), at("cert"),
		at("guest"), at("ca"), at("asks")}
	if !slices.Equal(got.Keys, keys) || !slices.Equal(got.Tokens, tokens) || !slices.Equal(got.Obeyed, obeyed) {
		t.Errorf("got %+v, want %q, %q and %q", got, keys, tokens, obeyed)
	}
	rules := pathRules(cfg)
	for _, key := range append(keys, tokens...) {
		if err := os.WriteFile(key, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := rules.Open(t.Context(), key, hostpath.Wish{ReadOnly: true}); err == nil {
			t.Errorf("%s may be mounted", key)
		}
	}
	o, err := rules.Open(t.Context(), at("token"), hostpath.Wish{ReadOnly: true, Token: true})
	if err != nil {
		t.Fatal(err)
	}
	o.Close()
}

// TestConfiguredBandwidth: gateway.bandwidth_mb is the limit of every gateway, in bytes per second.
func TestConfiguredBandwidth(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "cove.yaml")
	text := "home: " + filepath.Join(dir, "home") + "\ngateway: {bandwidth_mb: 1.5}\n"
	if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Read(config.Source{Path: at, Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	if o, err := gatewayOptions(&files{cfg: cfg}); err != nil || o.Bandwidth != 3<<19 {
		t.Errorf("%d bytes per second, %v; want %d", o.Bandwidth, err, 3<<19)
	}
}
