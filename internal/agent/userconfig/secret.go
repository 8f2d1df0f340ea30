package userconfig

import (
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode"

	git "github.com/cove-sandbox/cove/internal/git/policy"
	"github.com/cove-sandbox/cove/internal/pattern"
)

// secretWords are words in the names of keys, variables and headers whose values are secrets.
var secretWords = []string{"key", "keys", "apikey", "token", "secret", "secrets", "password", "passwd", "passphrase",
	"pwd", "pass", "pat", "credential", "credentials", "auth", "authorization", "cookie", "bearer", "jwt", "dsn",
	"private"}

// words parts a name at hyphens, underscores, and where small letters are followed by a capital one.
var words = pattern.New(`[A-Z]+(?:[a-z0-9]+)?|[a-z0-9]+`)

// secretName reports whether what has this name is a secret. The name of a variable that holds one is none.
func secretName(name string) bool {
	all := words.Regexp().FindAllString(name, -1)
	for i, w := range all {
		all[i] = strings.ToLower(w)
	}
	if n := len(all); n > 1 && slices.Contains([]string{"var", "env", "variable"}, all[n-1]) {
		return false
	}
	joined := strings.ToLower(strings.Join(all, ""))
	return slices.ContainsFunc(all, func(w string) bool { return slices.Contains(secretWords, w) }) ||
		strings.HasSuffix(joined, "apikey") || strings.HasSuffix(joined, "token") || strings.HasSuffix(joined, "password")
}

// references are values that name a variable or a file instead of having a secret.
var references = pattern.New(`\$\{[A-Za-z_][A-Za-z0-9_]*\}|\$[A-Za-z_][A-Za-z0-9_]*|\{(?:env|file):[^{}]*\}`)

var scheme = pattern.New(`(?i)^(bearer|basic|token)\s+`)

// isReference reports whether a value is nothing but references.
func isReference(value string) bool {
	value = scheme.Regexp().ReplaceAllString(strings.TrimSpace(value), "")
	return strings.TrimSpace(references.Regexp().ReplaceAllString(value, "")) == ""
}

// knownSecret reports whether a text has a secret of a known form.
func knownSecret(text []byte) bool {
	found := false
	s := git.Search{Known: true}
	for line := range strings.Lines(string(text)) {
		s.Line([]byte(line), func(string, []byte, bool) { found = true })
	}
	return found
}

var tokenForm = pattern.New(`^[A-Za-z0-9_+/=.:~-]{20,}$`)

// secretValue reports whether a value looks like a secret by itself: one of a known form, an address with a password, a
// header's scheme with what follows, or a long word of letters and digits that is no path and no version.
func secretValue(value string) bool {
	value = strings.TrimSpace(value)
	switch {
	case isReference(value):
		return false
	case scheme.MatchString(value), carriesSecret(value):
		return true
	case !tokenForm.MatchString(value), strings.Contains(value, "://"), strings.HasPrefix(value, "/"),
		strings.HasPrefix(value, "."):
		return false
	}
	return strings.ContainsFunc(value, unicode.IsDigit) && strings.ContainsFunc(value, unicode.IsLetter)
}

// carriesSecret reports whether a text has a secret of a known form, or is an address with one.
func carriesSecret(text string) bool {
	if knownSecret([]byte(text)) {
		return true
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return false
	}
	if password, has := u.User.Password(); has && !isReference(password) {
		return true
	}
	for name, values := range u.Query() {
		if secretName(name) && slices.ContainsFunc(values, func(v string) bool { return v != "" && !isReference(v) }) {
			return true
		}
	}
	return false
}

// secretArgs reports whether arguments of a program have a secret: as the value of an option, as NAME=VALUE, or as a
// header.
func secretArgs(args []any) bool {
	option := ""
	for _, a := range args {
		s, ok := a.(string)
		if !ok {
			continue
		}
		if option != "" && !strings.HasPrefix(s, "-") && !isReference(s) || carriesSecret(s) {
			return true
		}
		option = ""
		name, value, has := strings.Cut(s, "=")
		if !has {
			name, value, has = strings.Cut(s, ": ")
		}
		if !has {
			name, value, has = strings.Cut(s, ":")
		}
		switch {
		case has && secretName(name) && value != "" && !isReference(value) && !strings.HasPrefix(value, "//"):
			return true
		case !has && strings.HasPrefix(s, "-") && secretName(s):
			option = s
		}
	}
	return false
}

// neverNames are names of files that hold keys, wherever they are.
var neverNames = []string{".env", ".env.*", "*.pem", "*.key", "*.p12", "*.pfx", "*credential*", "oauth_creds*",
	"auth.json", ".netrc", "_netrc", ".npmrc", ".pypirc", "id_rsa*", "id_ed25519*", "id_ecdsa*", "*.kdbx",
	"history.jsonl", "google_accounts.json", "mcp-oauth-tokens*"}

// neverBrought reports whether a file of this name holds keys.
func neverBrought(name string) bool {
	return slices.ContainsFunc(neverNames, func(p string) bool {
		ok, _ := path.Match(p, strings.ToLower(name))
		return ok
	})
}
