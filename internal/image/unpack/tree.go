package unpack

import (
	"archive/tar"
	"errors"
	"hash/maphash"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

// Limits bound one tree.
type Limits struct {
	Entries    int64 // archive entries of all layers together
	Bytes      int64 // bytes of all layers, uncompressed, and of all files
	Ratio      int64 // unpacked bytes for each packed one, beyond RatioFloor
	NameLength int   // bytes of a path inside the tree
	Depth      int   // components of a path inside the tree
}

// DefaultLimits returns limits far above every real image, and below harm to a machine.
func DefaultLimits() Limits {
	return Limits{Entries: 1_000_000, Bytes: 10 << 30, Ratio: 250, NameLength: 4095, Depth: 255}
}

// Kind determines the meaning of an archive's special names.
type Kind int

// Stats are the totals of a tree.
type Stats struct {
	Bytes   int64 // content of regular files, each inode once
	Files   int64 // all entries except directories
	Dirs    int64
	Skipped int64 // entries that are never unpacked: devices, unknown types
}

// Tree is a directory being filled. It must be used by one goroutine.
type Tree struct {
	// Room is asked now and then while the tree grows, with the bytes that it has, and those until it is asked next; an
	// error ends it. May be nil.
	Room func(bytes, step int64) error

	root    *os.File
	limits  Limits
	owners  bool // the process may change owners
	entries int64
	bytes   int64 // of archives
	roomAt  int64 // of bytes, when Room is asked next
	written int64 // of files: a sparse file is larger than its archive
	stats   Stats
	linked  map[uint64]bool // inodes with several names that stats has counted

	// dirs holds the modes and times that Finish sets, by inode: until then all directories are writable, so that
	// read-only ones can be filled without root.
	dirs map[uint64]dirMeta
	// created holds the entries of the layer being applied: whiteouts hide only entries of the layers below.
	created map[place]struct{}
	seed    maphash.Seed
	at      parent // the last opened directory
	buf     []byte
	now     time.Time
}

// RatioFloor is the unpacked size of a layer below which its ratio is ignored: small archives of zeros are harmless and
// compress a thousandfold.
const RatioFloor = 128 << 20

const (
	Layer   Kind = iota // ".wh." names are whiteouts, as in the OCI image spec
	Archive             // every name is literal
)

// parent is an open directory of the tree (O_PATH) with its path. A tree caches one, since entries of a directory
// follow each other. The cached one cannot go stale, because only its content is removed while it is held.
type parent struct {
	path string
	fd   int
	ino  uint64
}

// ownerID keeps ids inside the range that a sandbox maps.
func ownerID(id int) int {
	if id < 0 || id > 65535 {
		return 65534 // the kernel shows this id for unmapped ones
	}
	return id
}

// permissions keeps set-user-id and set-group-id of regular files, which are for root inside: no other sandbox honours
// them, and no other user of the host reaches them. On directories set-group-id and sticky are kept.
func permissions(h *tar.Header) uint32 {
	special := uint32(0)
	switch h.Typeflag {
	case tar.TypeReg:
		special = unix.S_ISUID | unix.S_ISGID
	case tar.TypeDir:
		special = unix.S_ISGID | unix.S_ISVTX
	}
	return uint32(h.Mode) & (0o777 | special)
}

// sane limits a modification time to between 1970 and now.
func sane(mtime, now time.Time) time.Time {
	switch epoch := time.Unix(0, 0); {
	case mtime.Before(epoch):
		return epoch
	case mtime.After(now):
		return now
	}
	return mtime
}

func (l Limits) tooManyBytes() error {
	return cove.Errorf(cove.TooLarge, "the image unpacks to more than %d bytes", l.Bytes)
}

// failure gives an error of the file system its code.
func failure(err error, doing, name string) error {
	if _, ok := errors.AsType[*cove.Error](err); ok {
		return err
	}
	if IsFull(err) {
		return Full(err)
	}
	switch errno, _ := errors.AsType[unix.Errno](err); errno {
	case unix.ENOTDIR, unix.ELOOP, unix.EEXIST, unix.ENAMETOOLONG, unix.ENOENT, unix.EMLINK, unix.EXDEV, unix.EINVAL:
		return cove.Errorf(cove.InvalidArgument, "%s %.200q: %w", doing, name, err) // an entry of the archive is in the way
	}
	return cove.Errorf(cove.Internal, "%s %.200q: %w", doing, name, err)
}

// Full returns the error for a full disk.
func Full(err error) error {
	return cove.Errorf(cove.StorageFull, "no room for the image: %w", err).
		WithHint("free some space, or remove images with \"cove image prune\" or \"cove image remove\"")
}

// IsFull reports an error that means no space, or a read-only file system.
func IsFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EROFS)
}

// place identifies a name by the inode of its directory and a hash of its last component, under a random seed: storing
// a million long names would take too much memory.
type place struct {
	dir  uint64
	base uint64
}

func (t *Tree) place(dir uint64, base string) place {
	return place{dir, maphash.String(t.seed, base)}
}

type dirMeta struct {
	mode  uint32
	mtime int64 // nanoseconds since 1970
}

func (t *Tree) meta(h *tar.Header) dirMeta {
	return dirMeta{permissions(h), sane(h.ModTime, t.now).UnixNano()}
}

func undescribed(now time.Time) dirMeta { return dirMeta{0o755, now.UnixNano()} }

// malformed wraps errors of archive/tar; errors of the stream below keep their own code.
func malformed(err error) error {
	if _, ok := errors.AsType[*cove.Error](err); ok {
		return err
	}
	return cove.Errorf(cove.InvalidArgument, "not a readable tar archive: %w", err)
}
