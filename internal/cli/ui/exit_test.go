package ui

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
)

// TestEveryCodeHasAnExitCode: kinds of errors that scripts tell apart differ, and the help and the document have all.
func TestEveryCodeHasAnExitCode(t *testing.T) {
	document, err := os.ReadFile("../../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range cove.Codes {
		got := ExitCode(cove.Errorf(code, "x"))
		if got == 0 || !regexp.MustCompile(fmt.Sprintf(`(?m)^ *%d  `, got)).MatchString(ExitCodesHelp) {
			t.Errorf("%s: the help has nothing about %d", code, got)
		}
		if !strings.Contains(string(document), fmt.Sprintf("\n| %d | ", got)) {
			t.Errorf("%s: docs/cli.md has nothing about %d", code, got)
		}
	}
	for code, want := range map[cove.Code]int{cove.InvalidArgument: 120, cove.NotFound: 121, cove.Conflict: 122,
		cove.Unavailable: 123, cove.Internal: 125, cove.Forbidden: 126, cove.RuntimeMissing: 127} {
		if got := ExitCode(cove.Errorf(code, "x")); got != want {
			t.Errorf("%s: %d, want %d", code, got, want)
		}
	}
	for line := range strings.Lines(ExitCodesHelp) {
		if len(line) > 90 {
			t.Errorf("a line is too long: %q", line)
		}
	}
}
