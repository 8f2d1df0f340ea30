//go:build linux

package holdings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Search returns the regular files below directories that hold a text, and the number of files that it has looked into.
// Disks of sandboxes are files of gigabytes with few data, so holes are not read; the text has no zero byte, and
// therefore lies in none.
func Search(text string, dirs ...string) (found []string, files int, err error) {
	for _, dir := range dirs {
		walked := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.Type().IsRegular() {
				return nil
			}
			has := false
			if err == nil {
				has, err = holds(path, text)
			}
			switch {
			case errors.Is(err, fs.ErrNotExist): // it has gone meanwhile
				return nil
			case has:
				found = append(found, path)
			}
			files++
			return err
		})
		if walked != nil {
			err = errors.Join(err, fmt.Errorf("search %s: %w", dir, walked))
		}
	}
	return found, files, err
}

// without holds the files in which a text was not found, as they were then: programs of agents are hundreds of
// megabytes, and every search meets them.
var without sync.Map

// state is one of a file: whatever changes its content changes it.
type state struct {
	device, inode uint64
	size          int64
	changed       syscall.Timespec
	text          string
}

func holds(path, text string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	of := info.Sys().(*syscall.Stat_t)
	is := state{of.Dev, of.Ino, of.Size, of.Ctim, text}
	if _, known := without.Load(is); known {
		return false, nil
	}
	has, err := inData(f, []byte(text))
	if err == nil && !has {
		without.Store(is, nil)
	}
	return has, err
}

// inData reports whether the data of a file hold a text.
func inData(f *os.File, text []byte) (bool, error) {
	buffer := make([]byte, 1<<18)
	for at := int64(0); ; {
		begin, err := f.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // no data from here to the end
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if at, err = f.Seek(begin, unix.SEEK_HOLE); errors.Is(err, unix.ENXIO) { // it was made shorter
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if has, err := inReader(io.NewSectionReader(f, begin, at-begin), text, buffer); has || err != nil {
			return has, err
		}
	}
}

// inReader reads to the end in steps of a buffer. What lies across two steps is found.
func inReader(r io.Reader, text, buffer []byte) (bool, error) {
	for kept := 0; ; {
		n, err := r.Read(buffer[kept:])
		if bytes.Contains(buffer[:kept+n], text) {
			return true, nil
		}
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		kept = copy(buffer, buffer[max(0, kept+n-len(text)+1):kept+n])
	}
}
