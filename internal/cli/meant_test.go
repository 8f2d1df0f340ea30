package cli

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/cli/session"
)

// TestMeant: every word of another program leads to commands that exist, is no command itself, and has one meaning.
func TestMeant(t *testing.T) {
	root := rootCommand(session.New(Streams{Err: os.Stderr}, os.Getenv), nil)
	known := map[string]bool{}
	for _, c := range root.Commands() {
		known[c.Name()] = true
	}
	seen := map[string]bool{}
	for _, m := range meant {
		for word := range strings.FieldsSeq(m.words) {
			if known[word] || seen[word] {
				t.Errorf("%q is a command, or is there twice", word)
			}
			seen[word] = true
		}
		for _, typed := range regexp.MustCompile(`cove ([a-z]+)`).FindAllStringSubmatch(m.typed, -1) {
			if !known[typed[1]] {
				t.Errorf("%q leads to %q, which is no command", m.words, typed[0])
			}
		}
	}
	for word, want := range map[string]string{"rm": "cove destroy", "delete": "cove destroy", "create": "cove new",
		"ssh": "cove attach", "sandboxes": "cove list", "cp": "cove exec", "top": "cove info", "stats": "cove info"} {
		if err := unknownCommand(root, []string{word}); !strings.Contains(cove.ErrorHint(err), want) {
			t.Errorf("%s: %v", word, err)
		}
	}
}

// TestMisspelt: letters lead to a command that differs little, and in a short word hardly.
func TestMisspelt(t *testing.T) {
	root := rootCommand(session.New(Streams{Err: os.Stderr}, os.Getenv), nil)
	for word, want := range map[string]string{"rnu": `"cove run"`, "lst": `"cove list"`, "atach": `"cove attach"`,
		"doc": `"cove doctor"`, "stpo": `"cove stop"`, "xy": "cove --help", "mcp": "cove --help"} {
		if err := unknownCommand(root, []string{word}); !strings.Contains(cove.ErrorHint(err), want) {
			t.Errorf("%s: %v", word, err)
		}
	}
}

// TestHelpBegins: the first group of the help is what most people begin with.
func TestHelpBegins(t *testing.T) {
	root := rootCommand(session.New(Streams{Err: os.Stderr}, os.Getenv), nil)
	var first []string
	for _, c := range root.Commands() {
		if c.GroupID == root.Groups()[0].ID {
			first = append(first, c.Name())
		}
	}
	if want := []string{"run", "new", "claude"}; !slices.Equal(first, want) {
		t.Errorf("%q", first)
	}
}
