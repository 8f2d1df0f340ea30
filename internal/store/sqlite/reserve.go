package sqlite

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// reserve is the path of a file whose space lets ends be recorded on a full disk. An execution begins only while the
// reserve is whole. All processes with the database open share it.
type reserve string

const (
	// reserveSize is enough for the ends of some 150 executions without their output: each changes about a dozen pages,
	// which the write-ahead log holds whole.
	reserveSize = 8 << 20
	// reservePart is given up at a time, so that another program cannot take the whole.
	reservePart = 1 << 20
)

// keep makes the reserve whole.
func (r reserve) keep() error {
	if info, err := os.Stat(string(r)); err == nil && info.Size() == reserveSize {
		return nil
	}
	f, err := os.OpenFile(string(r), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	err = unix.Fallocate(int(f.Fd()), 0, 0, reserveSize)
	if errors.Is(err, unix.EOPNOTSUPP) {
		_, err = f.WriteAt(make([]byte, reserveSize), 0)
	}
	return err
}

// spend gives up a part of the reserve, of which so many bytes stay, and reports whether there was one.
func (r reserve) spend(left int64) bool {
	info, err := os.Stat(string(r))
	if err != nil || info.Size() <= left {
		return false
	}
	return os.Truncate(string(r), max(info.Size()-reservePart, left)) == nil
}
