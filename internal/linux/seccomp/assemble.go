package seccomp

import (
	"encoding/binary"

	"golang.org/x/net/bpf"
)

// Program is a filter in the kernel's format.
type Program []bpf.RawInstruction

// Bytes returns the program as struct sock_filter[], 8 bytes each, little endian.
func (p Program) Bytes() []byte {
	b := make([]byte, 0, 8*len(p))
	for _, i := range p {
		b = binary.LittleEndian.AppendUint16(b, i.Op)
		b = append(b, i.Jt, i.Jf)
		b = binary.LittleEndian.AppendUint32(b, i.K)
	}
	return b
}
