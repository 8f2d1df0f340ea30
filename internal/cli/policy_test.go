package cli_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPolicyDocument takes the policy and the expectations of docs/policy.md as they stand there: the policy has no
// warning, and every expectation is met.
func TestPolicyDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	blocks := regexp.MustCompile("(?s)```yaml\n# (\\S+)\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) != 3 {
		t.Fatalf("the document has %d files", len(blocks))
	}
	for _, b := range blocks {
		if err := os.WriteFile(filepath.Join(dir, b[1]), []byte("# "+b[1]+"\n"+b[2]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"policy", "check", "policy.yaml"}, {"policy", "check", "git.yaml"}, {"policy", "test", "expect.yaml"},
	} {
		var out bytes.Buffer
		cmd := exec.Command("cove", args...) // this test binary, by testscript.Main
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &out
		if err := cmd.Run(); err != nil {
			t.Errorf("%s: %v\n%s", strings.Join(args, " "), err, &out)
		}
	}
}
