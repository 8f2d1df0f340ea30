package policy

import (
	"slices"
	"strings"
	"testing"

	git "github.com/cove-sandbox/cove/internal/git/policy"
)

func compileTexts(t *testing.T, texts ...string) *Policy {
	t.Helper()
	var layers []*Document
	for _, text := range texts {
		d, err := Parse("p.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		written, err := d.YAML()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse("p.yaml", written)
		if err != nil {
			t.Fatalf("%q is written as %q: %v", text, written, err)
		}
		if twice, _ := again.YAML(); string(twice) != string(written) {
			t.Errorf("%q, written again: %q", written, twice)
		}
		layers = append(layers, again)
	}
	p, err := Compile(Machine{}, layers...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func gitAt(t *testing.T, p *Policy, path string) *git.Policy {
	t.Helper()
	h, err := ParseHost("git.example.com")
	if err != nil {
		t.Fatal(err)
	}
	return p.Git(h, 443, path)
}

// can returns a repository's grants as text for comparison.
func can(p *git.Policy) string {
	if p == nil {
		return "nothing"
	}
	var all []string
	for _, ref := range []string{"refs/heads/main", "refs/heads/own", "refs/heads/team/x", "refs/heads/other",
		"refs/tags/v1"} {
		const a, b = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
		for _, u := range []git.Update{{Ref: ref, Old: strings.Repeat("0", 40), New: b}, {Ref: ref, Old: a, New: b},
			{Ref: ref, Old: a, New: strings.Repeat("0", 40)}} {
			if v := p.Judge(git.Push{Updates: []git.Update{u}}, git.Facts{}); v.Action != git.Deny {
				how := "update"
				if u.Creates() {
					how = "create"
				} else if u.Deletes() {
					how = "delete"
				}
				all = append(all, v.Action.String()+" "+how+" "+ref)
			}
		}
		if p.Sees(ref, "refs/heads/main") {
			all = append(all, "see "+ref)
		}
	}
	return strings.ReplaceAll(strings.Join(all, ", "), "refs/", "")
}

// TestGit: grants of several documents merge as rules do.
func TestGit(t *testing.T) {
	const usual = "see heads/main, see tags/v1"
	const replace = "mode: limited\nmerge: replace\n"
	repo := func(more string) string {
		return "git: [{remote: https://git.example.com/group/repo.git" + more + "}]\n"
	}
	for name, c := range map[string]struct {
		layers []string
		want   string
	}{
		"nothing said":       {[]string{repo("")}, usual},
		"another repository": {[]string{"git: [{remote: https://git.example.com/other}]"}, "nothing"},
		"another port":       {[]string{"git: [{remote: 'https://git.example.com:8443/group/repo'}]"}, "nothing"},
		"all below":          {[]string{"git: [{remote: https://git.example.com/group/**}]"}, usual},
		"the most exact": {[]string{"git: [{remote: https://git.example.com/**, fetch: [other]}, {remote: " +
			"https://git.example.com/group/repo, fetch: []}, {remote: https://git.example.com/group/**}]"}, ""},
		"own": {[]string{repo(", push: own")},
			"see heads/main, allow create heads/own, see heads/own, see tags/v1"},
		"asked": {[]string{repo(", push: own, update: ask")},
			"see heads/main, ask create heads/own, see heads/own, see tags/v1"},
		"force and delete": {[]string{repo(", push: own, force: allow, delete: ask")},
			"see heads/main, allow create heads/own, allow update heads/own, ask delete heads/own, see heads/own, see tags/v1"},
		"fetch narrows": {[]string{repo(", fetch: [other]")}, "see heads/other"},
		"own alone":     {[]string{repo(", push: own, fetch: []")}, "allow create heads/own, see heads/own"},
		"tags":          {[]string{repo(", tags: allow, fetch: []")}, "allow create tags/v1"},
		"two extend": {[]string{repo(", push: own, fetch: []"), repo("")},
			"see heads/main, allow create heads/own, see heads/own, see tags/v1"},
		"a denial wins": {[]string{repo(", push: own, update: deny, fetch: []"),
			repo(", push: team/**, update: allow, fetch: []")}, "see heads/own, see heads/team/x"},
		"a denial wins, later": {[]string{repo(", push: own, update: allow, fetch: []"), repo(", update: deny, fetch: []")},
			"see heads/own"},
		"a question wins": {[]string{repo(", push: own, update: ask, fetch: []"), repo(", update: allow, fetch: []")},
			"ask create heads/own, see heads/own"},
		"protected stays": {[]string{repo(", protected: own, fetch: []"), replace +
			repo(", push: [own, team/x], fetch: []")}, "see heads/own, allow create heads/team/x, see heads/team/x"},
		"replace drops": {[]string{repo(", push: own, force: allow"), replace}, ""},
		"replace and anew": {[]string{repo(", push: own, tags: allow"), replace + repo(", push: team/x, fetch: []")},
			"allow create heads/team/x, see heads/team/x"},
	} {
		t.Run(name, func(t *testing.T) {
			p := compileTexts(t, c.layers...)
			got := can(gitAt(t, p, "/group/repo"))
			if got != c.want {
				t.Errorf("%s", got)
			}
			if again := can(gitAt(t, p, "/group/repo.git")); again != got {
				t.Errorf("with .git: %s", again)
			}
			if h, _ := ParseHost("git.example.com"); !p.GitHost(h) {
				t.Error("the host is not judged")
			}
		})
	}
	if (*Policy)(nil).Git(Host{}, 443, "/x") != nil || (*Policy)(nil).GitHost(Host{}) {
		t.Error("no policy at all has some git in it")
	}
}

func TestGitContents(t *testing.T) {
	p := gitAt(t, compileTexts(t, `git:
- remote: https://git.example.com/group/repo
  max_pack_mb: 7
  files: {block: [x/**], warn: y}
  secrets: [{name: key, pattern: "KEY-[0-9]+\\t"}]
  options: allow
  downloads: deny
  max_updates: 300
  known_secrets: ask
`, "git: [{remote: https://git.example.com/group/repo, max_pack_mb: 9, max_updates: 400, max_deleted: 5, "+
		"files: {block: z, defaults: false}}]"),
		"/group/repo")
	if p.PackLimit() != 7<<20 || !slices.Contains(p.Block, "x/**") || !slices.Contains(p.Block, "z") ||
		!slices.Contains(p.Block, ".github/workflows/**") ||
		!slices.Contains(p.Warn, "y") || p.Secrets[0].Pattern.String() != "KEY-[0-9]+\\t" ||
		p.Options != git.Allow || p.Downloads || p.UpdateLimit() != 300 || p.DeletionLimit(1000) != 5 || p.Known != git.Ask {
		t.Errorf("%+v", p)
	}
	bare := gitAt(t, compileTexts(t, "git: [{remote: https://git.example.com/group/repo, files: {defaults: false}}]"),
		"/group/repo")
	if bare.Block == nil || len(bare.Block) > 0 || len(bare.Warn) > 0 || !bare.Downloads ||
		bare.UpdateLimit() != 256 || bare.DeletionLimit(0) != 100 || bare.Known != git.Deny {
		t.Errorf("%+v", bare)
	}
}

func TestGitMistakes(t *testing.T) {
	for text, says := range map[string]string{
		"git: []":                         "p.yaml:1: git is a list",
		"git: {}":                         "git is a list",
		"git: [{}]":                       "which remote",
		"git:\n- remote: http://x.test/a": "p.yaml:2: ",
		"git: [{remote: git@x.test:a/b}]": "no remote",
		"git: [{remote: 'https://u:p@x.test/a'}]":                                "has a user",
		"git: [{remote: 'https://x.test/a?b'}]":                                  "has a query",
		"git: [{remote: 'https://x.test/a/../b'}]":                               "dot segment",
		"git: [{remote: 'https://x.test/*/b'}]":                                  "at the end only",
		"git: [{remote: https://x.test}]":                                        "names no repository",
		"git: [{remote: https://x.test/a, push: []}]":                            "push is empty",
		"git: [{remote: https://x.test/a, push: 'a*'}]":                          "at the end only",
		"git: [{remote: https://x.test/a, push: 'a..b'}]":                        "no such names",
		"git: [{remote: https://x.test/a, push: well-known}]":                    "is for fetch",
		"git: [{remote: https://x.test/a, force: yes}]":                          "allow, deny or ask",
		"git: [{remote: https://x.test/a, options: ask}]":                        "options is allow or deny",
		"git: [{remote: https://x.test/a, max_pack_mb: 0}]":                      "number of MiB",
		"git: [{remote: https://x.test/a, max_pack_mb: 1.5}]":                    "number of MiB",
		"git: [{remote: https://x.test/a, max_updates: 0}]":                      "number, 1 to 5000",
		"git: [{remote: https://x.test/a, max_updates: 5001}]":                   "number, 1 to 5000",
		"git: [{remote: https://x.test/a, max_deleted: none}]":                   "number, 1 to 100000",
		"git: [{remote: https://x.test/a, known_secrets: off}]":                  "allow, deny or ask",
		"git: [{remote: https://x.test/a, files: {block: /x}}]":                  "begins and ends",
		"git: [{remote: https://x.test/a, files: {defaults: no}}]":               "true or false",
		"git: [{remote: https://x.test/a, secrets: [{name: x}]}]":                "a name and a pattern",
		"git: [{remote: https://x.test/a, secrets: [{name: x, pattern: '('}]}]":  "RE2",
		"git: [{remote: https://x.test/a, secrets: [{name: x, pattern: 'a*'}]}]": "found in everything",
		"git: [{remote: https://x.test/a, who: me}]":                             "has no key \"who\"",
		"git: [{remote: https://x.test/a}, {remote: https://x.test/a.git}]":      "there already, in p.yaml:1",
	} {
		if _, err := Parse("p.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestForRepository: a sandbox's document opens its repository and nothing else.
func TestForRepository(t *testing.T) {
	d, err := ForRepository("new", "https://git.example.com/group/repo.git", "own", nil, true)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Compile(Machine{}, d)
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]Action{
		"https://git.example.com/group/repo/info/refs":              Allow,
		"https://git.example.com/group/repo.git/git-receive-pack":   Allow,
		"https://git.example.com/group/repo.git/config":             Deny,
		"https://git.example.com/group/other.git/git-upload-pack":   Deny,
		"https://git.example.com:8443/group/repo.git/info/refs":     Deny,
		"https://git.example.com/group/repo.git/objects/info/packs": Deny,
		"https://git.example.com/":                                  Deny,
	} {
		u, err := ParseURL(target)
		if err != nil {
			t.Fatal(err)
		}
		for _, method := range []string{"GET", "POST"} {
			if v, _ := p.Explain(Request{Host: u.Host, Port: u.Port, Method: method, Path: u.Path}); v.Action != want {
				t.Errorf("%s %s: %+v", method, target, v)
			}
		}
		if v, _ := p.Explain(Request{Host: u.Host, Port: u.Port, Method: "PUT", Path: u.Path}); v.Action != Deny {
			t.Errorf("PUT %s: %+v", target, v)
		}
	}
	if got := can(gitAt(t, p, "/group/repo")); got !=
		"see heads/main, allow create heads/own, see heads/own, see tags/v1" || !p.GitHub().PullRequests {
		t.Error(got)
	}
	if found, err := Check(Machine{}, d); err != nil || slices.ContainsFunc(found, func(f Finding) bool {
		return f.Severity == Warning
	}) {
		t.Errorf("%+v, %v", found, err)
	}
	for _, bad := range [][2]string{{"https://git.example.com/group/**", "own"}, {"ssh://git.example.com/a", "own"},
		{"https://git.example.com/a", "a..b"}} {
		if _, err := ForRepository("new", bad[0], bad[1], nil, false); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// TestOwnBranch: a push to a sandbox's own branch is asked about where others have it at once, unless a document names
// the branch for pushes.
func TestOwnBranch(t *testing.T) {
	const named = "git: [{remote: https://git.example.com/group/repo, push: [main, fix-1]}]"
	for branch, want := range map[string][2]string{
		"own": {"allow create heads/own", "allow"}, "main": {"ask update heads/main", "allow"},
		"release/2": {"ask create heads/release/2", "ask"}, "gh-pages": {"ask create heads/gh-pages", "ask"},
		"hotfix/7": {"ask create heads/hotfix/7", "ask"}, "maintenance": {"allow create heads/maintenance", "allow"},
	} {
		repository, err := ForRepository("new", "https://git.example.com/group/repo", branch, nil, false)
		if err != nil {
			t.Fatal(err)
		}
		text, err := repository.YAML()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse("again.yaml", text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		more, err := Parse("more.yaml", []byte(named))
		if err != nil {
			t.Fatal(err)
		}
		ref := "refs/heads/" + branch
		for i, layers := range [][]*Document{{repository}, {again}, {repository, more}, {more, repository}} {
			p, err := Compile(Machine{}, layers...)
			if err != nil {
				t.Fatal(err)
			}
			u := git.Update{Ref: ref, Old: strings.Repeat("a", 40), New: strings.Repeat("b", 40)}
			got := gitAt(t, p, "/group/repo").Admit(git.Push{Updates: []git.Update{u}}).Action.String()
			expected, _, _ := strings.Cut(want[0], " ")
			if i >= 2 {
				expected = want[1]
			}
			if got != expected {
				t.Errorf("%s, layers %d: %s, want %s", branch, i, got, expected)
			}
		}
	}
}

// TestGitLint: Check reports unreachable and wide grants.
func TestGitLint(t *testing.T) {
	for text, want := range map[string]string{
		"git: [{remote: https://x.test/a}]":                                                              "unreachable",
		"rules: [{hosts: x.test, methods: GET}]\ngit: [{remote: https://x.test/a, push: b}]":             "unreachable",
		"rules: [{hosts: x.test, pass_through: true}]\ngit: [{remote: https://x.test/a}]":                "unseen",
		"rules: [{hosts: x.test}]\ngit: [{remote: https://x.test/a, push: b, force: allow}]":             "write-capable",
		"rules: [{hosts: x.test}]\ngit: [{remote: https://x.test/a, push: b, files: {defaults: false}}]": "write-capable",
		"rules: [{hosts: x.test, methods: [GET, POST], paths: ['/*/info/refs', '/*/git-upload-pack']}]\ngit: [{remote: " +
			"https://x.test/a}]": "",
	} {
		d, err := Parse("p.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		found, err := Check(Machine{}, d)
		if err != nil {
			t.Fatal(err)
		}
		var kinds []string
		for _, f := range found {
			if f.Rule == d.Git[0].ID {
				kinds = append(kinds, f.Kind)
			}
		}
		if strings.Join(kinds, " ") != want {
			t.Errorf("%q: %+v", text, found)
		}
	}
}
