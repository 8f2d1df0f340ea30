package unpack

import (
	"archive/tar"
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/rootfs"
)

const (
	// Capability is the extended attribute with the capabilities of a program.
	Capability = "security.capability"
	// CapabilityRecord names it in an archive.
	CapabilityRecord = "SCHILY.xattr." + Capability

	capVersion = 0x02000000 // of capabilities that count where root owns the file system
	capFlags   = 1          // that they are effective at once
)

// fileCapabilities returns the attribute with the capabilities of a program, as an archive has it, or nil. A program
// with others than root inside may have could not be run at all, and is run without.
func fileCapabilities(h *tar.Header) []byte {
	value := []byte(h.PAXRecords[CapabilityRecord])
	if len(value) != 20 { // the version, and permitted and inheritable ones of two halves
		return nil
	}
	word := func(i int) uint64 { return uint64(binary.LittleEndian.Uint32(value[4*i:])) }
	all := word(1) | word(2) | (word(3)|word(4))<<32
	if word(0)&^capFlags != capVersion || all == 0 || all&^rootfs.RootCapabilities != 0 {
		return nil
	}
	return value
}

// setCapabilities gives a file its capabilities, after its owner, with which they go. A file system or an account that
// cannot leaves the file without.
func setCapabilities(fd int, h *tar.Header) error {
	value := fileCapabilities(h)
	if value == nil {
		return nil
	}
	if err := unix.Fsetxattr(fd, Capability, value, 0); err != unix.ENOTSUP && err != unix.EPERM {
		return err
	}
	return nil
}
