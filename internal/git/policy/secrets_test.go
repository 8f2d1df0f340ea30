package policy

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// random is a text of n different letters and figures, as keys have.
func random(n int) string {
	const some = "q7Rk2ZpWv9LdXe4TnHb8MyCs3GfJ6uAa5Ki1Nt0QoVxYwPzEhUgBjDmSrFlIc" // no two follow each other
	return strings.Repeat(some, n/len(some)+1)[:n]
}

func named(text string) (names []string) {
	s := Search{Known: true}
	for line := range strings.Lines(text) {
		s.Line([]byte(line), func(name string, _ []byte, known bool) {
			if known {
				names = append(names, name)
			}
		})
	}
	return names
}

// TestKnownSecrets: tokens are told by their forms, and what looks like them is not.
func TestKnownSecrets(t *testing.T) {
	upper := regexp.MustCompile("[^A-Z2-7]").ReplaceAllString(random(120), "")
	for want, texts := range map[string][]string{
		"GitHub token": {"token: ghp_" + random(36), `"gho_` + random(36) + `"`,
			"github_pat_" + random(22) + "_" + random(59),
			"https://x:ghs_" + random(36) + "@github.com/o/r"},
		"GitLab token": {"GITLAB_TOKEN=glpat-" + random(20), "glpat-" + random(27) + ".01." + random(9)},
		"Slack token": {"xoxb-194720475837-293847561029-" + random(24), "xapp-1-A0" + upper[:9] +
			"-5938475610293-" + "9f8c2e7b1a6d4053c7e9b2f8a1d6c4e07b3f9a5d2c8e1b6f4a7d0c3e9b5f2a8d"},
		"Slack webhook":        {"https://hooks.slack.com/services/T02" + upper[:8] + "/B04" + upper[:8] + "/" + random(24)},
		"AWS access key":       {"aws_access_key_id = AKIA" + upper[:16]},
		"AWS secret key":       {"aws_secret_access_key = " + random(40), `AWS_SECRET_ACCESS_KEY="` + random(40) + `"`},
		"Google API key":       {`"current_key": "AIza` + random(35) + `"`},
		"Google client secret": {"GOCSPX-" + random(28)},
		"Stripe key":           {"sk_live_" + random(24), "rk_live_" + random(99)},
		"Anthropic key":        {"ANTHROPIC_API_KEY=sk-ant-api03-" + random(95), "sk-ant-oat01-" + random(95)},
		"OpenAI key":           {"sk-proj-" + random(120), "sk-" + random(20) + "T3BlbkFJ" + random(20)},
		"npm token":            {"//registry.example/:_authToken=npm_" + random(36)},
		"PyPI token":           {"password = pypi-AgEIcHlwaS5vcmc" + random(150)},
		"": {
			"ghp_" + strings.Repeat("x", 36), "ghp_abcdefghijklmnopqrstuvwxyz0123456789", "ghp_" + random(35),
			"ghp_YOUR" + random(32), "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
			"aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "AKIA" + upper[:17],
			"sk-ant-api03-...", "sk-ant-api03-" + strings.Repeat("a", 95), "sk_test_" + random(24),
			"API_KEY=${API_KEY}", "password: " + random(20), "integrity sha512-" + random(86) + "==",
			"commit 0123456789abcdef0123456789abcdef01234567", "export GH_TOKEN=ghp_…",
			"AIza" + strings.Repeat("Sy", 17) + "A", "fooghp_" + random(36), "npm_config_registry=https://x",
			`strings.Contains(s, "-----BEGIN RSA PRIVATE KEY-----")`,
			"-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----\n",
			"-----BEGIN PUBLIC KEY-----\n" + random(64) + "\n",
			"-----BEGIN CERTIFICATE-----\n" + random(64) + "\n",
			"-----BEGIN PRIVATE KEY-----\n" + strings.Repeat("A", 64) + "\n",
			"the header -----BEGIN PRIVATE KEY----- is followed by base64\n\nlike this:\n" + random(64),
		},
	} {
		for _, text := range texts {
			if got := named(text); strings.Join(slices.Compact(got), ",") != want {
				t.Errorf("%q: %q, want %q", text, got, want)
			}
		}
	}
}

// TestPrivateKeys: keys are found in each form in which programs write them, and in the strings of source code.
func TestPrivateKeys(t *testing.T) {
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	e, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sec1, err := x509.MarshalECPrivateKey(e)
	if err != nil {
		t.Fatal(err)
	}
	forms := map[string]string{"RSA": encoded("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(r)),
		"EC": encoded("EC PRIVATE KEY", sec1)}
	for name, key := range map[string]any{"RSA, PKCS 8": r, "EC, PKCS 8": e, "Ed25519": ed} {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		forms[name] = encoded("PRIVATE KEY", der)
	}
	for _, kind := range []string{"ed25519", "rsa", "ecdsa"} {
		file := filepath.Join(t.TempDir(), "key")
		if out, err := exec.Command("ssh-keygen", "-q", "-t", kind, "-N", "", "-f", file).CombinedOutput(); err != nil {
			t.Logf("no OpenSSH key: %v %s", err, out)
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		forms["OpenSSH "+kind] = string(data)
	}
	forms["with headers"] = strings.Replace(forms["RSA"], "-----\n", "-----\nProc-Type: 4,ENCRYPTED\n"+
		"DEK-Info: AES-128-CBC,9F8C2E7B1A6D4053\n\n", 1)
	for name, key := range forms {
		inJSON, _ := json.Marshal(map[string]string{"private_key": key})
		for form, text := range map[string]string{"file": key, "CRLF": strings.ReplaceAll(key, "\n", "\r\n"),
			"YAML": "key: |\n  " + strings.ReplaceAll(key, "\n", "\n  "),
			"JSON": string(inJSON),
			"Go":   "const key = `" + key + "`\n",
			"C":    `"` + strings.ReplaceAll(key, "\n", "\\n\"\n\"") + `"`,
		} {
			if form == "JSON" && name == "with headers" {
				continue // nobody has written that
			}
			if got := named(text); len(got) != 1 || got[0] != "private key" {
				t.Errorf("%s as %s: %q\n%s", name, form, got, text)
			}
		}
	}
}

func encoded(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// TestSameSecret: two keys of one form are told apart, and one key in two places is not.
func TestSameSecret(t *testing.T) {
	text := func(content string) (all []string) {
		s := Search{Known: true, Secrets: []Secret{{"own", regexp.MustCompile("dk_[0-9]")}}}
		for line := range strings.Lines(content) {
			s.Line([]byte(line), func(_ string, text []byte, _ bool) { all = append(all, string(text)) })
		}
		return all
	}
	a, b := text("x = ghp_"+random(36)), text("if y == \"ghp_"+random(36)+"\" {")
	if !slices.Equal(a, b) {
		t.Errorf("%q %q", a, b)
	}
	if a, b := text("x dk_1\n"), text("y dk_1"); slices.Equal(a, b) || a[0] != "x dk_1" {
		t.Errorf("%q %q: a line is what a policy's own pattern finds", a, b)
	}
}

func BenchmarkSearch(b *testing.B) {
	line := []byte(`	if err := r.objects(ctx, []string{b.id}, func(_, _ string, content io.Reader) error {` + "\n")
	s := Search{Known: true}
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		s.Line(line, func(string, []byte, bool) {})
	}
}
