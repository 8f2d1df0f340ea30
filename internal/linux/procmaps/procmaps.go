// Package procmaps reads /proc/PID/maps.
package procmaps

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Mapping is a part of a process's memory.
type Mapping struct {
	From, To uint64
	Prot     int // PROT_READ and others
	Shared   bool
	Offset   uint64
	Inode    uint64
	Name     string // of a file, as [heap], or empty; the process may have chosen it
}

// File reports whether a file is mapped.
func (m Mapping) File() bool { return m.Inode != 0 }

const pageSize = 4096 // the smallest

// Parse reads the text of such a file. The page of [vsyscall] is no memory of the process, and left out.
func Parse(text []byte) (all []Mapping, err error) {
	var last uint64
	for line := range bytes.Lines(text) {
		var m Mapping
		fields := strings.SplitN(strings.TrimSuffix(string(line), "\n"), " ", 6)
		if len(fields) < 5 {
			return nil, fmt.Errorf("a line of maps: %.200q", line)
		}
		if len(fields) == 6 {
			m.Name = strings.TrimLeft(fields[5], " ")
		}
		from, to, _ := strings.Cut(fields[0], "-")
		var errs [4]error
		m.From, errs[0] = strconv.ParseUint(from, 16, 64)
		m.To, errs[1] = strconv.ParseUint(to, 16, 64)
		m.Offset, errs[2] = strconv.ParseUint(fields[2], 16, 64)
		m.Inode, errs[3] = strconv.ParseUint(fields[4], 10, 64)
		perms := fields[1]
		if errs != [4]error{} || len(perms) != 4 {
			return nil, fmt.Errorf("a line of maps: %.200q", line)
		}
		for i, prot := range []int{unix.PROT_READ, unix.PROT_WRITE, unix.PROT_EXEC} {
			if perms[i] != '-' {
				m.Prot |= prot
			}
		}
		m.Shared = perms[3] == 's'
		if m.Name == "[vsyscall]" && !m.File() {
			continue
		}
		if m.From < last || m.To <= m.From || (m.From|m.To)%pageSize != 0 {
			return nil, fmt.Errorf("a mapping from %x to %x, after %x", m.From, m.To, last)
		}
		last = m.To
		all = append(all, m)
	}
	return all, nil
}
