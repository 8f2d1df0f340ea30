package seccomp

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestTableIsTheKernels compares the table with the one x/sys generates from
// the kernel's headers, on both architectures.
func TestTableIsTheKernels(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for _, arch := range arches() {
		target, _ := arch.abi()
		file, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "unix", "zsysnum_linux_"+string(arch)+".go"))
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]int{}
		line := regexp.MustCompile(`^\s+SYS_(\w+)\s+= (\d+)$`)
		for s := bufio.NewScanner(bytes.NewReader(file)); s.Scan(); {
			if m := line.FindStringSubmatch(s.Text()); m != nil {
				want[strings.ToLower(m[1])], _ = strconv.Atoi(m[2])
			}
		}
		delete(want, "arch_specific_syscall") // a range, not a call
		if len(want) < 300 {
			t.Fatalf("only %d calls read for %s", len(want), arch)
		}
		for _, c := range calls() {
			n := int(target.number(c))
			if w, ok := want[c.name]; !ok && n != absent || ok && w != n {
				t.Errorf("%s on %s is %d here, %d in x/sys", c.name, arch, n, w)
			}
			delete(want, c.name)
		}
		for name, n := range want {
			t.Errorf("%s (%d) of %s is not in the table: decide about it", name, n, arch)
		}
	}
}

// TestEveryCallIsDecided: each call of the table is in exactly one list, with a reason.
func TestEveryCallIsDecided(t *testing.T) {
	for _, p := range allPolicies() {
		verdicts, err := p.resolve()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range calls() {
			if _, ok := verdicts[c.name]; !ok {
				t.Errorf("%s says nothing about %s", p.Name, c.name)
			}
		}
		for _, g := range append(p.Allowed, p.Refused...) {
			if g.Why == "" {
				t.Errorf("%s gives no reason for %v", p.Name, g.Calls)
			}
		}
		for _, r := range p.Conditional {
			if r.Why == "" {
				t.Errorf("%s gives no reason for %s", p.Name, r.Call)
			}
		}
	}
}
