package policy

import (
	"bytes"
	"regexp"
	"sync"
)

// Secret is a pattern that pushed lines must not match.
type Secret struct {
	Name    string
	Pattern *regexp.Regexp
}

// known is a kind of secret that is told by its form.
type known struct {
	name    string
	marks   []string // a line without any of these has none
	pattern func() *regexp.Regexp
}

// pattern is compiled when it is first needed: most commands look for no secret.
func pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// knownSecrets are private keys in one line, and tokens of services that mark theirs. Values without a mark, such as
// passwords, are not among them: a commit's hash has the same form.
var knownSecrets = []known{
	{"private key", []string{"PRIVATE KEY"},
		pattern(`-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----(?:\\r)?\\n([A-Za-z0-9+/=\\]{60,})`)},
	{"GitHub token", []string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_"},
		pattern(`\bgh[pousr]_([A-Za-z0-9]{36,255})\b`)},
	{"GitHub token", []string{"github_pat_"}, pattern(`\bgithub_pat_([A-Za-z0-9]{22}_[A-Za-z0-9]{59})\b`)},
	{"GitLab token", []string{"glpat-", "gldt-", "glrt-", "glptt-", "glcbt-", "glsoat-"},
		pattern(`\bgl(?:pat|dt|rt|ptt|cbt|soat)-([A-Za-z0-9_.-]{20,})`)},
	{"Slack token", []string{"xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-"},
		pattern(`\bxox[abprs]-(?:[0-9]+-){1,3}([A-Za-z0-9]{24,})\b`)},
	{"Slack token", []string{"xapp-"}, pattern(`\bxapp-[0-9]-[A-Z0-9]+-[0-9]+-([a-f0-9]{60,})\b`)},
	{"Slack webhook", []string{"hooks.slack.com/services/"},
		pattern(`hooks\.slack\.com/services/T[A-Z0-9]{7,}/B[A-Z0-9]{7,}/([A-Za-z0-9]{24})\b`)},
	{"AWS access key", []string{"AKIA", "ASIA"}, pattern(`\bA[KS]IA([A-Z2-7]{16})\b`)},
	{"AWS secret key", []string{"aws_secret_access_key", "AWS_SECRET_ACCESS_KEY"},
		pattern(`(?i:aws_secret_access_key)["']?\s*[:=]\s*["']?([A-Za-z0-9/+]{40})(?:[^A-Za-z0-9/+=]|$)`)},
	{"Google API key", []string{"AIza"}, pattern(`\bAIza([A-Za-z0-9_-]{35})(?:[^A-Za-z0-9_-]|$)`)},
	{"Google client secret", []string{"GOCSPX-"}, pattern(`\bGOCSPX-([A-Za-z0-9_-]{28})(?:[^A-Za-z0-9_-]|$)`)},
	{"Stripe key", []string{"k_live_"}, pattern(`\b[rs]k_live_([A-Za-z0-9]{24,})\b`)},
	{"Anthropic key", []string{"sk-ant-"}, pattern(`\bsk-ant-[a-z]+[0-9]{2}-([A-Za-z0-9_-]{80,})`)},
	{"OpenAI key", []string{"sk-proj-", "sk-svcacct-", "sk-admin-"},
		pattern(`\bsk-(?:proj|svcacct|admin)-([A-Za-z0-9_-]{40,})`)},
	{"OpenAI key", []string{"T3BlbkFJ"}, pattern(`\bsk-([A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20})\b`)},
	{"npm token", []string{"npm_"}, pattern(`\bnpm_([A-Za-z0-9]{36})\b`)},
	{"PyPI token", []string{"pypi-AgE"}, pattern(`\bpypi-AgE([A-Za-z0-9_-]{50,})`)},
}

// Parts of a private key in several lines: its first, the headers that may follow, and a line of its content.
var (
	keyBegins  = pattern(`-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----`)
	keyHeader  = pattern(`^\W*(?:\\n\W*)?(?:[A-Z][A-Za-z0-9-]*: .*)?$`)
	keyContent = pattern(`[A-Za-z0-9+/]{60,}`)
	// opensshHeader begins the content of OpenSSH's form, whose first line is the same in many keys.
	opensshHeader = []byte("b3BlbnNzaC1rZXktdjE")
)

// Search looks for secrets in the lines of one file, in their order.
type Search struct {
	Secrets []Secret
	Known   bool // also for private keys and tokens of known forms
	inKey   bool // the lines before begin a private key
}

// Line hands the secrets in a line to found. text is what makes a secret the same in another version of the file.
func (s *Search) Line(line []byte, found func(name string, text []byte, known bool)) {
	line = bytes.TrimRight(line, "\r\n")
	for _, secret := range s.Secrets {
		if secret.Pattern.Match(line) {
			found(secret.Name, line, false)
		}
	}
	if !s.Known {
		return
	}
	if s.inKey && !keyHeader().Match(line) && !bytes.Contains(line, opensshHeader) {
		s.inKey = false
		if text := keyContent().Find(line); text != nil && !madeUp(text) {
			found("private key", text, true)
		}
	}
	mayHave := hasWord(line)
	for _, k := range knownSecrets {
		if !mayHave || !k.marked(line) {
			continue
		}
		for _, m := range k.pattern().FindAllSubmatch(line, -1) {
			if !madeUp(m[1]) {
				found(k.name, m[1], true)
			}
		}
	}
	if bytes.Contains(line, []byte("PRIVATE KEY")) {
		s.inKey = keyBegins().Match(line)
	}
}

// shortestKey is the length of the shortest of the known secrets, with its mark.
const shortestKey = 20

// hasWord reports whether a line has a word that may be a key.
func hasWord(line []byte) bool {
	n := 0
	for _, c := range line {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-', c == '/', c == '+':
			if n++; n == shortestKey {
				return true
			}
		default:
			n = 0
		}
	}
	return false
}

func (k known) marked(line []byte) bool {
	for _, mark := range k.marks {
		if bytes.Contains(line, []byte(mark)) {
			return true
		}
	}
	return false
}

// madeUp reports whether the random part of a key looks like one that documentation or a test has made up: few
// different characters, the alphabet, or a word that says so.
func madeUp(text []byte) bool {
	lower := bytes.ToLower(text)
	for _, word := range []string{"example", "xxxx", "0000", "1234567", "placeholder", "redacted", "your"} {
		if bytes.Contains(lower, []byte(word)) {
			return true
		}
	}
	var seen [256]bool
	different, ascending := 0, 0
	for i, c := range text {
		if !seen[c] {
			seen[c] = true
			different++
		}
		if i > 0 && (c == text[i-1]+1 || c == text[i-1]) {
			ascending++
		}
	}
	return different < min(len(text)/3, 12) || ascending*2 > len(text)
}
