package agent

import (
	"regexp"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
)

func TestBranchOf(t *testing.T) {
	for _, c := range []struct{ issue, title, want string }{
		{"42", "Make the login work!", "issue-42-make-the-login-work"},
		{"#42", "", "issue-42"},
		{"owner/repo#42", "A", "issue-42-a"},
		{"https://github.com/owner/repo/issues/42", "A", "issue-42-a"},
		{"LOGIN-7", "Umlaut: Ärger", "login-7-umlaut-rger"},
		{"42", strings.Repeat("word ", 30), "issue-42-word-word-word-word-word-word-word-word-word-word"},
		{"42", strings.Repeat("w", 200), "issue-42-" + strings.Repeat("w", 51)},
		{strings.Repeat("x", 200), "", strings.Repeat("x", 60)},
		{"../..", "", "issue"},
		{"日本", "", "issue"},
	} {
		if got := branchOf(c.issue, c.title); got != c.want {
			t.Errorf("branchOf(%q, %q) = %q, want %q", c.issue, c.title, got, c.want)
		}
	}
}

// FuzzBranchOf: whatever an issue is called, its branch is one that git takes.
func FuzzBranchOf(f *testing.F) {
	f.Add("42", "Make it work")
	f.Add("a/b#1", "--force ..@{ .lock")
	form := regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	f.Fuzz(func(t *testing.T, issue, title string) {
		if got := branchOf(issue, title); !form.MatchString(got) || len(got) > maxBranch {
			t.Errorf("%q", got)
		}
	})
}

func TestIssueArgs(t *testing.T) {
	for _, c := range []struct{ issue, repo, want string }{
		{"42", "owner/repo", "issue view 42 --repo owner/repo --json title,body,url"},
		{"#42", "owner/repo", "issue view 42 --repo owner/repo --json title,body,url"},
		{"other/place#7", "/srv/repo", "issue view 7 --repo other/place --json title,body,url"},
		{"42", "https://git.example/team/app.git", "issue view 42 --repo git.example/team/app --json title,body,url"},
		{"https://github.com/owner/repo/issues/42", ".",
			"issue view https://github.com/owner/repo/issues/42 --json title,body,url"},
		{"42", ".", ""}, {"LOGIN-7", "owner/repo", ""}, {"--web", "owner/repo", ""}, {"4;2", "owner/repo", ""},
	} {
		got, err := issueArgs(c.issue, c.repo)
		if strings.Join(got, " ") != c.want || (c.want == "") != (cove.ErrorCode(err) == cove.InvalidArgument) {
			t.Errorf("issueArgs(%q, %q) = %q, %v", c.issue, c.repo, got, err)
		}
	}
}

func TestTitleOf(t *testing.T) {
	for text, want := range map[string]string{"\n\n# Make it work\n\nNow.": "Make it work", "plain": "plain",
		"#\n": "", "": ""} {
		if got := titleOf(text); got != want {
			t.Errorf("titleOf(%q) = %q, want %q", text, got, want)
		}
	}
}
