package seccomp

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "write the golden files")

// engineDecides evaluates a profile as container runtimes do: a call's rules
// are alternatives, a rule's arguments all hold, and arguments have 64 bits.
func engineDecides(p *specs.LinuxSeccomp, name string, args [6]uint64) uint32 {
	for _, s := range p.Syscalls {
		misses := func(a specs.LinuxSeccompArg) bool {
			switch v := args[a.Index]; a.Op {
			case specs.OpMaskedEqual:
				return v&a.Value != a.ValueTwo
			case specs.OpEqualTo:
				return v != a.Value
			case specs.OpNotEqual:
				return v == a.Value
			}
			return true
		}
		if !slices.Contains(s.Names, name) || slices.ContainsFunc(s.Args, misses) {
			continue
		}
		if s.Action == specs.ActAllow {
			return unix.SECCOMP_RET_ALLOW
		}
		return unix.SECCOMP_RET_ERRNO | uint32(*s.ErrnoRet)
	}
	return retFor(syscall.EPERM) // SCMP_ACT_ERRNO by default
}

func TestOCIIsThePolicy(t *testing.T) {
	for _, p := range allPolicies() {
		for _, arch := range arches() {
			t.Run(p.Name+"/"+string(arch), func(t *testing.T) {
				profile, err := p.OCI(arch)
				if err != nil {
					t.Fatal(err)
				}
				target, _ := arch.abi()
				p := p.loadable()
				draws := attempts(t, p, arch)
				check := func(c attempt) error {
					i := slices.IndexFunc(calls(), func(k call) bool { return int64(target.number(k)) == int64(c.number) })
					if i < 0 {
						return nil
					}
					got, want := engineDecides(profile, calls()[i].name, c.args), decide(t, p, arch, c)
					if got != want {
						return fmt.Errorf("%s%#x: %s, policy says %s", calls()[i].name, c.args, show(got), show(want))
					}
					return nil
				}
				rapid.Check(t, func(rt *rapid.T) {
					c := draws.Draw(rt, "call")
					c.audit = target.audit
					if err := check(c); err != nil {
						rt.Fatal(err)
					}
				})
				for n := range uint32(512) {
					if err := check(attempt{audit: target.audit, number: n}); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
}

// TestComplement: the cubes are disjoint and cover exactly the unlisted values.
func TestComplement(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		mask := rapid.Uint32().Draw(rt, "mask")
		values := rapid.SliceOfN(rapid.Uint32(), 1, 4).Draw(rt, "values")
		for i := range values {
			values[i] &= mask
		}
		cubes := Test{Mask: mask, In: values, Not: true}.cubes()
		x := rapid.OneOf(rapid.Uint32(), rapid.Custom(func(rt *rapid.T) uint32 {
			return rapid.SampledFrom(values).Draw(rt, "near") ^ 1<<rapid.IntRange(0, 31).Draw(rt, "bit")
		}), rapid.SampledFrom(values)).Draw(rt, "x")
		covered := 0
		for _, c := range cubes {
			if x&c.mask == c.value {
				covered++
			}
		}
		want := 1
		if slices.Contains(values, x&mask) {
			want = 0
		}
		if covered != want {
			rt.Fatalf("%#x is in %d of %d cubes, want %d", x, covered, len(cubes), want)
		}
	})
}

// TestAllowedGolden lists the calls that each policy allows, one a line, so that a review shows the effect of a change.
func TestAllowedGolden(t *testing.T) {
	for _, p := range allPolicies() {
		for _, arch := range arches() {
			verdicts, err := p.resolve()
			if err != nil {
				t.Fatal(err)
			}
			filter := compiled(t, p, arch)
			target, _ := arch.abi()
			var lines []string
			for _, c := range calls() {
				n := target.number(c)
				if n == absent {
					continue
				}
				got := show(run(t, filter, attempt{audit: target.audit, number: uint32(n)}))
				if verdicts[c.name].rule != nil {
					got = "condition"
				}
				if got == "allow" || got == "condition" {
					lines = append(lines, fmt.Sprintf("%4d %s %s", n, got, c.name))
				}
			}
			slices.Sort(lines)
			golden(t, p.Name+"-"+string(arch)+".txt", strings.Join(lines, "\n")+"\n")
		}
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (write it with: go test ./internal/linux/seccomp -update)", err)
	}
	if got != string(want) {
		t.Errorf("%s differs; look at it with: go test ./internal/linux/seccomp -update && git diff", path)
	}
}
