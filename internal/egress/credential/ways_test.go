package credential

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
)

// noAnthropic isolates the test from the machine's credentials for Anthropic. It returns the path of Claude Code's
// login.
func noAnthropic(t *testing.T) (login string) {
	for _, name := range []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"} {
		t.Setenv(name, "")
		os.Unsetenv(name)
	}
	dir := t.TempDir()
	t.Setenv("CLAUDE_CONFIG_DIR", dir)
	return filepath.Join(dir, ".credentials.json")
}

func anthropic(t *testing.T) *Set {
	t.Helper()
	chosen, err := Choose(nil, "anthropic")
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSet(NewValues(clock.Real()), chosen...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestAnthropicWays: the machine's current credential decides at each use which header is set, whatever the sandbox
// sent, and which placeholder a new sandbox gets.
func TestAnthropicWays(t *testing.T) {
	login := noAnthropic(t)
	write := func(token string, expires time.Time) {
		text := fmt.Sprintf(`{"claudeAiOauth":{"accessToken":%q,"refreshToken":"never-looked-at","expiresAt":%d}}`, token,
			expires.UnixMilli())
		if err := os.WriteFile(login, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := anthropic(t)
	ask := func() (header, value, beta string, err error) {
		r, h := request(t, "POST", "https://api.anthropic.com/v1/messages")
		h.Header.Set("X-Api-Key", "the sandbox's")
		h.Header.Set("Authorization", "Bearer the sandbox's")
		h.Header.Set("Anthropic-Beta", "one,two")
		names, err := s.Apply(r, h, nil)
		if err == nil && fmt.Sprint(names) != "[anthropic]" {
			t.Errorf("%v were set", names)
		}
		if err == nil && (h.Header.Get("X-Api-Key") == "") == (h.Header.Get("Authorization") == "") {
			t.Errorf("not one of both: %v", h.Header)
		}
		if v := h.Header.Get("X-Api-Key"); v != "" {
			return "X-Api-Key", v, h.Header.Get("Anthropic-Beta"), err
		}
		return "Authorization", h.Header.Get("Authorization"), h.Header.Get("Anthropic-Beta"), err
	}
	const oauth = "one,two,oauth-2025-04-20"
	for _, c := range []struct {
		has                         string
		set                         func()
		header, value, beta         string
		variable, placeholder, from string
	}{
		{"a login of Claude Code", func() { write("login-"+canary, time.Now().Add(time.Hour)) },
			"Authorization", "Bearer login-" + canary, oauth, "CLAUDE_CODE_OAUTH_TOKEN", "sk-ant-oat01-", "claude"},
		{"a token", func() { t.Setenv("ANTHROPIC_AUTH_TOKEN", "token-"+canary) },
			"Authorization", "Bearer token-" + canary, "one,two", "ANTHROPIC_AUTH_TOKEN", "", "env:ANTHROPIC_AUTH_TOKEN"},
		{"a token of setup-token", func() { t.Setenv("CLAUDE_CODE_OAUTH_TOKEN", "oat-"+canary) },
			"Authorization", "Bearer oat-" + canary, oauth, "CLAUDE_CODE_OAUTH_TOKEN", "sk-ant-oat01-",
			"env:CLAUDE_CODE_OAUTH_TOKEN"},
		{"a key", func() { t.Setenv("ANTHROPIC_API_KEY", "key-"+canary) },
			"X-Api-Key", "key-" + canary, "one,two", "ANTHROPIC_API_KEY", "sk-ant-api03-", "env:ANTHROPIC_API_KEY"},
	} {
		c.set() // in addition to the earlier ones
		header, value, beta, err := ask()
		if err != nil || header != c.header || value != c.value || beta != c.beta {
			t.Errorf("%s: %s: %s, %s, %v", c.has, header, value, beta, err)
		}
		held := s.Placeholders()
		if p := held[c.variable]; len(held) != 1 || !strings.HasPrefix(p, c.placeholder) ||
			!strings.HasSuffix(p, "-cove-placeholder-AA") || len(p) != 108 {
			t.Errorf("%s: %v", c.has, held)
		}
		if from, err := s.credentials[0].ready(t.Context(), NewValues(clock.Real())); err != nil || from != c.from {
			t.Errorf("%s: %s, %v", c.has, from, err)
		}
	}
	known, _ := s.Known()
	if len(known) != 4 {
		t.Errorf("%d values are kept out of answers", len(known))
	}

	login = noAnthropic(t)
	for why, prepare := range map[string]func(){
		"nothing": func() {},
		"expired": func() { write(canary+"-expired", time.Now().Add(-time.Minute)) },
		"no JSON": func() { os.WriteFile(login, []byte(canary), 0o600) },
		"another": func() { os.WriteFile(login, []byte(`{"mcpOAuth":{}}`), 0o600) },
	} {
		prepare()
		_, _, _, err := ask()
		if cove.ErrorCode(err) != cove.Unavailable || !strings.Contains(err.Error(),
			"env:ANTHROPIC_API_KEY, env:CLAUDE_CODE_OAUTH_TOKEN, env:ANTHROPIC_AUTH_TOKEN, claude") {
			t.Errorf("%s: %v", why, err)
		}
		noLeak(t, why, fmt.Sprint(err))
		if _, err := s.credentials[0].ready(t.Context(), NewValues(clock.Real())); cove.ErrorCode(err) != cove.Unavailable {
			t.Errorf("%s: %v", why, err)
		}
		if _, ok := s.Placeholders()["ANTHROPIC_API_KEY"]; !ok {
			t.Errorf("%s: %v", why, s.Placeholders())
		}
	}
}

// TestUnusableValue: where a source has a value that cannot be used, the error tells which one and why.
func TestUnusableValue(t *testing.T) {
	login := noAnthropic(t)
	expired := fmt.Sprintf(`{"claudeAiOauth":{"accessToken":%q,"expiresAt":1}}`, canary)
	if err := os.WriteFile(login, []byte(expired), 0o600); err != nil {
		t.Fatal(err)
	}
	s := anthropic(t)
	see := func(want string) {
		t.Helper()
		r, h := request(t, "POST", "https://api.anthropic.com/v1/messages")
		_, applied := s.Apply(r, h, nil)
		_, checked := s.credentials[0].ready(t.Context(), s.values)
		for _, err := range []error{applied, checked} {
			if cove.ErrorCode(err) != cove.Unavailable || !strings.Contains(cove.ErrorMessage(err), "_TOKEN, claude; "+want) {
				t.Errorf("%v", err)
			}
		}
	}
	see("claude: the login of Claude Code has expired; use it once")
	t.Setenv("ANTHROPIC_API_KEY", "sk-test")
	see("env:ANTHROPIC_API_KEY: it has 7 bytes, and must have 8 to 8192 to be kept out of answers")
}

// TestAlso: an element is not added to a list that contains it.
func TestAlso(t *testing.T) {
	t.Setenv("COVE_TEST_SERVICE", canary)
	s := set(t,
		`credentials: [{name: a, source: 'env:COVE_TEST_SERVICE', to: [{hosts: api.example.com, form: bearer, also: `+
			`"x-features: tokens"}]}]`)
	for before, want := range map[string]string{"": "tokens", "tokens": "tokens", "a, tokens": "a, tokens",
		"a": "a,tokens", "tokens2": "tokens2,tokens"} {
		r, h := request(t, "GET", "https://api.example.com/")
		if before != "" {
			h.Header.Set("X-Features", before)
		}
		if _, err := s.Apply(r, h, nil); err != nil || h.Header.Get("X-Features") != want {
			t.Errorf("%q: %v, %v", before, h.Header, err)
		}
	}
}

func TestOrIsParsed(t *testing.T) {
	const head = "credentials:\n- name: a\n  source: env:A\n  to: [{hosts: api.example.com, form: bearer}]\n  or:\n  - "
	for text, want := range map[string]string{
		head + "source: env:B\n    to: [{hosts: api.example.com, form: header, header: X-Key}]": "",
		head + "source: env:B": "all of them need one, or none",
		head +
			"name: b\n    source: env:B\n    to: [{hosts: api.example.com, form: bearer}]": "test.yaml:6: an entry of or",
		head +
			"source: env:B\n    to: [{hosts: api.example.com, form: bearer}]\n    or: [{source: env:C, to: []}]": "an entry of or",
		"credentials: [{name: a, source: 'env:A', to: [{hosts: api.example.com, form: bearer, also: 'Host: x'}]}]":  "also is",
		"credentials: [{name: a, source: 'env:A', to: [{hosts: api.example.com, form: bearer, also: 'X-A: b,c'}]}]": "also is",
		"credentials: [{name: a, source: 'claude:x', to: [{hosts: api.example.com, form: bearer}]}]":                "takes nothing",
		"credentials: [{name: a, source: claude, to: [{hosts: api.example.com, form: bearer}, {hosts: api.example.com, " +
			"form: basic, user: x}]}]": "",
	} {
		_, err := Parse("test.yaml", []byte(text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
