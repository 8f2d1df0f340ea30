package seccomp

import (
	"runtime"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/cove-sandbox/cove"
)

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

// abi describes an architecture to the filter.
type abi struct {
	audit uint32 // AUDIT_ARCH_*, as in seccomp_data.arch
	// oci are the SCMP_ARCH_* values of this architecture and of the other ABIs of its kernels.
	oci    []specs.Arch
	number func(call) int16
	// foreign is the first number that belongs to another ABI; 0 for none.
	foreign uint32
}

func (a Arch) abi() (abi, error) {
	switch a {
	case AMD64:
		return abi{0xc000003e, []specs.Arch{specs.ArchX86_64, specs.ArchX86, specs.ArchX32}, func(c call) int16 {
			return c.amd64
		}, x32Bit}, nil
	case ARM64:
		return abi{0xc00000b7, []specs.Arch{specs.ArchAARCH64, specs.ArchARM}, func(c call) int16 { return c.arm64 }, 0}, nil
	}
	return abi{}, cove.Errorf(cove.Unsupported, "no system call policy for architecture %q", string(a)).
		WithHint("Cove runs on amd64 and arm64")
}
