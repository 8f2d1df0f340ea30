package repos

import (
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/cove-sandbox/cove"
)

func TestParseSource(t *testing.T) {
	for _, tt := range []struct {
		in       string
		url, key string // empty: refused
	}{
		{"owner/repo", "https://github.com/owner/repo.git", "github.com/owner/repo"},
		{"Owner/Repo.git", "https://github.com/Owner/Repo.git", "github.com/owner/repo"},
		{"https://github.com/Owner/Repo", "https://github.com/Owner/Repo.git", "github.com/owner/repo"},
		{"https://github.com/owner/repo/", "https://github.com/owner/repo.git", "github.com/owner/repo"},
		{"HTTPS://GitHub.com:443/owner/repo.git", "https://github.com/owner/repo.git", "github.com/owner/repo"},
		{"git@github.com:owner/repo.git", "https://github.com/owner/repo.git", "github.com/owner/repo"},
		{"github.com:owner/repo", "https://github.com/owner/repo.git", "github.com/owner/repo"},
		{"ssh://git@github.com/owner/repo.git", "https://github.com/owner/repo.git", "github.com/owner/repo"},
		{"ssh://git@git.example:2222/group/sub/repo.git", "https://git.example/group/sub/repo.git",
			"git.example/group/sub/repo"},
		{"git+ssh://git.example/a", "https://git.example/a", "git.example/a"},
		{"https://git.example:8443/a/b", "https://git.example:8443/a/b", "git.example:8443/a/b"},
		{"https://somebody@git.example/a/b.git", "https://git.example/a/b.git", "git.example/a/b"},
		{"https://git.example/My%20Project/_git/repo", "https://git.example/My%20Project/_git/repo",
			"git.example/My%20Project/_git/repo"},
		{"https://git.example/a%2eb", "https://git.example/a.b", "git.example/a.b"},
		{"https://[2001:db8::1]/a", "https://[2001:db8::1]/a", "[2001:db8::1]/a"},
		{"https://münchen.example/a", "https://xn--mnchen-3ya.example/a", "xn--mnchen-3ya.example/a"},

		{in: ""}, {in: "repo"}, {in: "."}, {in: "./x"}, {in: "../x"}, {in: "a/b/c"}, {in: "-oProxyCommand=x"},
		{in: "--upload-pack=x"}, {in: "-/x"},
		{in: "ext::sh -c id"}, {in: "ext::sh%20-c%20id"}, {in: "fd::3"}, {in: "cove::x"},
		{in: "https::https://git.example/a"},
		{in: "file:///etc"}, {in: "FILE:///etc"}, {in: "git://git.example/a"}, {in: "git://169.254.169.254/a"},
		{in: "ftp://git.example/a"}, {in: "http://git.example/a"},
		{in: "http://127.0.0.1:2375/a"}, {in: "http://localhost/a"}, {in: "ssh://-oProxyCommand=x/a"}, {in: "ssh://git@-x/a"},
		{in: "-x@git.example:a"},
		{in: "https://user:word@git.example/a"}, {in: "https://:word@git.example/a"}, {in: "ssh://user:word@git.example/a"},
		{in: "https://git.example/a\nb"}, {in: "https://git.example/a\r"}, {in: "https://git.example/a%0ab"},
		{in: "https://git.example/a%00"}, {in: "owner/repo\x00"},
		{in: "https://git.example/"}, {in: "https://git.example"}, {in: "https:///a"}, {in: "https://git.example/.."},
		{in: "https://git.example/a/../b"},
		{in: "https://git.example/a/%2e%2e/b"}, {in: "https://git.example/a%2fb"}, {in: "https://git.example/a//b"},
		{in: "https://git.example/-a"}, {in: "https://git.example/.git"},
		{in: "https://git.example/a.git/objects"}, {in: "https://git.example/a.GIT/b"}, {in: "https://git.example/a?b"},
		{in: "https://git.example/a?"}, {in: "https://git.example/a#b"}, {in: "https://git.example/a#"},
		{in: "https://git.example/a\\b"}, {in: "https://git.example:0/a"}, {in: "https://git.example:99999/a"},
		{in: "https://git.example:+443/a"}, {in: "https://gi t.example/a"},
		{in: "https://git.example%00/a"}, {in: "https://github.com/owner"}, {in: "https://github.com/owner/repo/tree/main"},
		{in: "git@github.com:~/x"}, {in: "https://git.example/\u202ea"},
		{in: "/srv/repo"}, {in: strings.Repeat("a", 3000) + "/b"}, {in: "https://git.example/" + strings.Repeat("a", 300)},
	} {
		got, err := ParseSource(ci, tt.in)
		if (err == nil) != (tt.url != "") || got.URL != tt.url || got.Key != tt.key {
			t.Errorf("%.100q: %+v, %v", tt.in, got, err)
		}
		if err != nil && strings.Contains(err.Error(), "word") && strings.Contains(tt.in, ":word@") &&
			strings.Contains(err.Error(), ":word") {
			t.Errorf("%q: the password is in the error: %v", tt.in, err)
		}
	}
}

func TestParseSourceOfTheOwner(t *testing.T) {
	for in, want := range map[string]Source{
		"/srv/repo":                  {Dir: "/srv/repo"},
		"/srv/../srv/repo/":          {Dir: "/srv/repo"},
		"http://127.0.0.1:8080/a":    {URL: "http://127.0.0.1:8080/a", Key: "http.127.0.0.1:8080/a"},
		"http://localhost/a.git":     {URL: "http://localhost/a.git", Key: "http.localhost/a"},
		"http://[::1]:80/a":          {URL: "http://[::1]/a", Key: "http.[::1]/a"},
		"https://localhost:8443/a/b": {URL: "https://localhost:8443/a/b", Key: "localhost:8443/a/b"},
	} {
		if got, err := ParseSource(owner, in); err != nil || got != want {
			t.Errorf("%s: %+v, %v", in, got, err)
		}
	}
	for _, in := range []string{"http://git.example/a", "file:///srv/repo", "srv/repo/x", "ext::true", "/srv/a\nb"} {
		if got, err := ParseSource(owner, in); err == nil {
			t.Errorf("%s: %+v", in, got)
		}
	}
	if _, err := ParseSource(ci, "/srv/repo"); cove.ErrorCode(err) != cove.Forbidden {
		t.Errorf("a directory of a stranger's: %v", err)
	}
}

func TestKeyOfDirectory(t *testing.T) {
	a, b := keyOfDirectory("/srv/a/repo/.git"), keyOfDirectory("/srv/b/repo/.git")
	if a == b || !strings.HasPrefix(a, ".local/repo-") {
		t.Error(a, b)
	}
	if k := keyOfDirectory("/srv/ü \n../.git"); !filepath.IsLocal(k) || strings.ContainsAny(k, " \n") {
		t.Errorf("%q", k)
	}
}

// judgeSource returns what is wrong with the result for a hostile source.
func judgeSource(in string, got Source) string {
	switch {
	case !strings.HasPrefix(got.URL, "https://"):
		return "it is no address of HTTPS"
	case strings.ContainsAny(got.URL, " \n\r\x00\\\"'`$;|<>"):
		return "it has characters that have no place in it"
	case !filepath.IsLocal(got.Key) || filepath.Clean(got.Key) != got.Key || strings.HasPrefix(got.Key, "."):
		return "its key is no place in the store"
	case strings.Contains(got.Key+"/", ".git/"):
		return "its key lies in another mirror"
	}
	again, err := ParseSource(ci, got.URL)
	if err != nil || again != got {
		return "it is another one when it is read again"
	}
	return ""
}

func FuzzParseSource(f *testing.F) {
	for _, s := range []string{"owner/repo", "git@github.com:a/b.git", "https://git.example:8443/a%20b/c",
		"ssh://x@[::1]:22/a", "ext::x", "/srv/x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseSource(ci, s)
		if err != nil {
			return
		}
		if why := judgeSource(s, got); why != "" {
			t.Errorf("%q is %+v: %s", s, got, why)
		}
	})
}

// TestSourcesAreKept: an address built from parts parses to itself, in every notation.
func TestSourcesAreKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		host := rapid.StringMatching(`[a-z][a-z0-9]{0,9}\.(example|test)`).Draw(t, "host")
		path := rapid.StringMatching(
			`[A-Za-z0-9_][A-Za-z0-9_+.]{0,8}[A-Za-z0-9_](/[A-Za-z0-9_][A-Za-z0-9_+-]{0,9}){0,3}x`).Draw(t, "path")
		want := Source{}
		for i, in := range []string{"https://" + host + "/" + path, "https://" + host + "/" + path + ".git",
			"git@" + host + ":" + path, "ssh://git@" + host + ":22/" + path + "/"} {
			got, err := ParseSource(ci, in)
			if err != nil {
				if strings.Contains(strings.ToLower(path), ".git/") {
					return
				}
				t.Fatalf("%s: %v", in, err)
			}
			if i == 0 {
				want = got
			}
			if got.Key != want.Key || judgeSource(in, got) != "" {
				t.Fatalf("%s: %+v, want the key %s (%s)", in, got, want.Key, judgeSource(in, got))
			}
		}
	})
}
