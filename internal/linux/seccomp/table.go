package seccomp

import (
	_ "embed"
	"runtime"
	"strconv"
	"strings"
	"sync"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

// call is one system call: its name and its number on each architecture.
type call struct {
	name         string
	amd64, arm64 int16 // absent where the architecture has no such call
}

const absent = -1

//go:embed table.txt
var table string

// calls returns the table of Linux 6.19. It is read when the first policy is compiled; a test compares it with x/sys.
var calls = sync.OnceValue(func() []call {
	var all []call
	for line := range strings.Lines(table) {
		if f := strings.Fields(line); f[0] != "#" {
			all = append(all, call{name: f[0], amd64: callNumber(f[1]), arm64: callNumber(f[2])})
		}
	}
	return all
})

func callNumber(text string) int16 {
	if text == "-" {
		return absent
	}
	n, err := strconv.ParseInt(text, 10, 16)
	if err != nil {
		panic("seccomp: table.txt: " + err.Error())
	}
	return int16(n)
}

// Arch is a processor architecture, named as GOARCH names it.
type Arch string

const (
	AMD64 Arch = "amd64"
	ARM64 Arch = "arm64"
)

// HostArch is the architecture of this build.
func HostArch() Arch { return Arch(runtime.GOARCH) }

// x32Bit marks the numbers of x86-64's second ABI, which shares the first one's audit architecture (__X32_SYSCALL_BIT).
const x32Bit = 0x40000000

type abi struct {
	audit   uint32       // AUDIT_ARCH_*, as in seccomp_data.arch
	oci     []specs.Arch // this architecture and the other ABIs of its kernels
	number  func(call) int16
	foreign uint32 // the first number that belongs to another ABI; 0 for none
}

func (a Arch) abi() (abi, error) {
	switch a {
	case AMD64:
		return abi{unix.AUDIT_ARCH_X86_64, []specs.Arch{specs.ArchX86_64, specs.ArchX86, specs.ArchX32},
			func(c call) int16 { return c.amd64 }, x32Bit}, nil
	case ARM64:
		return abi{unix.AUDIT_ARCH_AARCH64, []specs.Arch{specs.ArchAARCH64, specs.ArchARM},
			func(c call) int16 { return c.arm64 }, 0}, nil
	}
	return abi{}, cove.Errorf(cove.Unsupported, "no system call policy for architecture %q", string(a)).
		WithHint("Cove runs on amd64 and arm64")
}
