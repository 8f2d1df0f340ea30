//go:build linux

package zygote

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/linux/procmaps"
)

// mapping is a part of a process's memory.
type mapping struct{ procmaps.Mapping }

func (m mapping) area() Area { return Area{Name: m.Name, From: m.From, To: m.To} }

// own reports whether the kernel has mapped it into every process.
func (m mapping) own() bool {
	return m.Name == "[vdso]" || m.Name == "[vvar]" || m.Name == "[vvar_vclock]"
}

// mapped reads /proc/PID/maps.
func mapped(text []byte) (all []mapping, err error) {
	read, err := procmaps.Parse(text)
	for _, m := range read {
		if m.To > topOfMemory {
			return nil, fmt.Errorf("a mapping from %x to %x", m.From, m.To)
		}
		all = append(all, mapping{m})
	}
	return all, err
}

// process reads what /proc has of one.
type process struct{ dir string }

// maxText bounds a file of /proc, in bytes: names that the process has chosen may be in it.
const maxText = 1 << 20

func (p process) read(name string) ([]byte, error) {
	f, err := os.Open(path.Join(p.dir, name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxText+1))
	if len(text) > maxText {
		return nil, unsupported("its %s is longer than %d bytes", name, maxText)
	}
	return text, err
}

// status is a field of /proc/PID/status.
func (p process) status(field string) (string, error) {
	text, err := p.read("status")
	if err != nil {
		return "", err
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), field+":"); ok {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("%s/status has no %s", p.dir, field)
}

// mask is a field of signals.
func (p process) mask(field string) (uint64, error) {
	text, err := p.status(field)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(text, 16, 64)
}

// Fields of /proc/PID/stat, as proc_pid_stat(5) counts them.
const (
	startCode, endCode, startStack       = 26, 27, 28
	startData, endData, startBreak       = 45, 46, 47
	argStart, argEnd, envStart, envLimit = 48, 49, 50, 51
)

// stat reads those fields, by their numbers.
func (p process) stat() (fields [envLimit + 1]uint64, err error) {
	text, err := p.read("stat")
	if err != nil {
		return fields, err
	}
	all := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	for _, n := range []int{startCode, endCode, startStack, startData, endData, startBreak, argStart, argEnd, envStart,
		envLimit} {
		if len(all) <= n-3 {
			return fields, fmt.Errorf("%s/stat has %d fields", p.dir, len(all))
		}
		if fields[n], err = strconv.ParseUint(all[n-3], 10, 64); err != nil {
			return fields, err
		}
	}
	return fields, nil
}

// descriptors finds the named pipe at a path, which is all that is open beside the standard streams.
func (p process) descriptors(fifo string) (fd, flags int, err error) {
	entries, err := os.ReadDir(path.Join(p.dir, "fd"))
	if err != nil {
		return 0, 0, err
	}
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			return 0, 0, err
		}
		if n <= 2 {
			continue
		}
		target, err := os.Readlink(path.Join(p.dir, "fd", e.Name()))
		if err != nil {
			return 0, 0, err
		}
		if target != fifo || fd != 0 {
			return 0, 0, unsupported("the descriptor %d is %.200s", n, target)
		}
		fd = n
	}
	if fd == 0 {
		return 0, 0, unsupported("%s is not open", fifo)
	}
	text, err := p.read(path.Join("fdinfo", strconv.Itoa(fd)))
	if err != nil {
		return 0, 0, err
	}
	_, after, _ := strings.Cut(string(text), "flags:")
	f, err := strconv.ParseInt(strings.Fields(after + " x")[0], 8, 32)
	return fd, int(f), err
}

// file describes a mapped file as it is now.
func (p process) file(name string) (File, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path.Join(p.dir, "root", name), &st); err != nil {
		return File{}, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return File{}, unsupported("%s is no file", name)
	}
	return File{Path: name, Inode: st.Ino, Size: st.Size, Mtime: [2]int64{st.Mtim.Sec, st.Mtim.Nsec},
		Ctime: [2]int64{st.Ctim.Sec, st.Ctim.Nsec}}, nil
}
