package folder

import (
	"bytes"
	"cmp"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/policy"
)

const (
	maxPlain = 100_000 // files of a folder without a repository, against packing a home by mistake
	maxBytes = 32 << 30
)

// plain packs a folder without a repository, and without git: its files as one commit. The objects are counted and
// named first, since a pack begins with their number, and read again when they are written.
type plain struct {
	root    *os.Root
	objects []object
	known   map[[sha1.Size]byte]bool
	files   int
	bytes   int64
}

// object is one that comes into the pack: with its data, or the path of a file that has it.
type object struct {
	id   [sha1.Size]byte
	kind byte // gitformat-pack(5)
	size int64
	data []byte
	path string
}

const (
	commitObject byte = 1
	treeObject   byte = 2
	blobObject   byte = 3
)

var kinds = map[byte]string{commitObject: "commit", treeObject: "tree", blobObject: "blob"}

// newPlain returns the id of the folder's commit, and what writes its pack.
func newPlain(ctx context.Context, dir string) (commit string, write func(context.Context, io.Writer) error,
	err error) {
	if home, err := os.UserHomeDir(); dir == filepath.Dir(dir) || err == nil && dir == filepath.Clean(home) {
		return "", nil, cove.Errorf(cove.Forbidden, "%s is not copied: everything that is yours is in it", dir).
			WithHint("name the directory of a project")
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", nil, cove.Errorf(cove.NotFound, "cannot read %s: %w", dir, err)
	}
	defer root.Close()
	p := &plain{root: root, known: map[[sha1.Size]byte]bool{}}
	tree, err := p.tree(ctx, ".")
	if err != nil {
		return "", nil, err
	}
	if tree == nil {
		empty := p.add(object{kind: treeObject, data: []byte{}})
		tree = empty[:]
	}
	id := p.add(object{kind: commitObject, data: fmt.Appendf(nil, "tree %x\nauthor %s\ncommitter %[2]s\n\n"+
		"What was in the directory\n", tree, fmt.Sprintf("Cove <cove@localhost> %d +0000", time.Now().Unix()))})
	return hex.EncodeToString(id[:]), func(ctx context.Context, to io.Writer) error {
		root, err := os.OpenRoot(dir)
		if err != nil {
			return cove.Errorf(cove.NotFound, "cannot read %s: %w", dir, err)
		}
		defer root.Close()
		p.root = root
		return p.write(ctx, to)
	}, nil
}

// add adds an object with its data, once, and returns its id.
func (p *plain) add(o object) [sha1.Size]byte {
	o.size = int64(len(o.data))
	sum := header(o)
	sum.Write(o.data)
	return p.keep(o, sum)
}

func (p *plain) keep(o object, sum hash.Hash) [sha1.Size]byte {
	copy(o.id[:], sum.Sum(nil))
	if !p.known[o.id] {
		p.known[o.id] = true
		p.objects = append(p.objects, o)
	}
	return o.id
}

// header returns a hash that has read the header of an object (gitformat-loose(5)).
func header(o object) hash.Hash {
	sum := sha1.New()
	fmt.Fprintf(sum, "%s %d\x00", kinds[o.kind], o.size)
	return sum
}

// tree adds a directory and what is in it, and returns its id; nil of one without files, which git does not have, and
// of a repository of its own. No symbolic link is followed.
func (p *plain) tree(ctx context.Context, dir string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, cove.Errorf(cove.Canceled, "the folder is not read: %w", err)
	}
	entries, err := fs.ReadDir(p.root.FS(), dir)
	if err != nil {
		return nil, unreadable(dir, err)
	}
	type line struct{ name, text string }
	var lines []line
	for _, e := range entries {
		if strings.EqualFold(e.Name(), ".git") && dir != "." {
			return nil, nil
		}
	}
	for _, e := range entries {
		if strings.EqualFold(e.Name(), ".git") {
			continue // whatever it is, git has none
		}
		var id []byte
		mode, order, name := policy.File, e.Name(), path.Join(dir, e.Name())
		switch kind := e.Type(); {
		case kind.IsDir():
			mode, order = 0o040000, e.Name()+"/" // as git sorts
			id, err = p.tree(ctx, name)
		case kind&fs.ModeSymlink != 0:
			mode = policy.Symlink
			var target string
			if target, err = p.root.Readlink(name); err == nil {
				link := p.add(object{kind: blobObject, data: []byte(filepath.ToSlash(target))})
				id = link[:]
			}
		case kind.IsRegular():
			id, mode, err = p.file(name)
		}
		if err != nil {
			return nil, unreadable(name, err)
		}
		if id != nil {
			lines = append(lines, line{order, fmt.Sprintf("%o %s\x00%s", mode, e.Name(), id)})
		}
	}
	if len(lines) == 0 {
		return nil, nil
	}
	slices.SortFunc(lines, func(a, b line) int { return strings.Compare(a.name, b.name) })
	var data bytes.Buffer
	for _, l := range lines {
		data.WriteString(l.text)
	}
	id := p.add(object{kind: treeObject, data: data.Bytes()})
	return id[:], nil
}

// file adds a file.
func (p *plain) file(name string) (id []byte, mode policy.Mode, err error) {
	f, err := p.root.Open(name)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	p.files, p.bytes = p.files+1, p.bytes+info.Size()
	if p.files > maxPlain || p.bytes > maxBytes {
		return nil, 0, cove.Errorf(cove.TooLarge, "the folder has more than %d GiB or %d files", maxBytes>>30, maxPlain).
			WithHint("make it a repository, whose .gitignore names generated files")
	}
	o := object{kind: blobObject, size: info.Size(), path: name}
	sum := header(o)
	if n, err := io.Copy(sum, f); err != nil || n != o.size {
		return nil, 0, cmp.Or(err, changes(name))
	}
	mode = policy.File
	if info.Mode()&0o100 != 0 {
		mode = policy.Program
	}
	kept := p.keep(o, sum)
	return kept[:], mode, nil
}

// write writes the pack (gitformat-pack(5)).
func (p *plain) write(ctx context.Context, to io.Writer) error {
	sum := sha1.New()
	out := io.MultiWriter(to, sum)
	begin := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32([]byte("PACK"), 2), uint32(len(p.objects)))
	if _, err := out.Write(begin); err != nil {
		return err
	}
	for _, o := range p.objects {
		if err := ctx.Err(); err != nil {
			return cove.Errorf(cove.Canceled, "the folder is not sent: %w", err)
		}
		if err := p.put(out, o); err != nil {
			return err
		}
	}
	_, err := to.Write(sum.Sum(nil))
	return err
}

// put writes one object. Errors: Conflict when its file has changed.
func (p *plain) put(out io.Writer, o object) error {
	first, rest := o.kind<<4|byte(o.size&15), o.size>>4
	var head []byte
	for ; rest > 0; rest >>= 7 {
		head, first = append(head, first|0x80), byte(rest&0x7f)
	}
	if _, err := out.Write(append(head, first)); err != nil {
		return err
	}
	var from io.Reader = bytes.NewReader(o.data)
	if o.path != "" {
		f, err := p.root.Open(o.path)
		if err != nil {
			return unreadable(o.path, err)
		}
		defer f.Close()
		from = io.LimitReader(f, o.size+1)
	}
	z, sum := zlib.NewWriter(out), header(o)
	n, err := io.Copy(io.MultiWriter(z, sum), from)
	if err == nil && (n != o.size || !bytes.Equal(sum.Sum(nil), o.id[:])) {
		err = changes(o.path)
	}
	if err != nil {
		return err
	}
	return z.Close()
}

func changes(name string) error {
	return cove.Errorf(cove.Conflict, "%q changes while it is read", name).WithHint("try again when nothing writes to it")
}

func unreadable(name string, err error) error {
	if _, known := errors.AsType[*cove.Error](err); known {
		return err
	}
	return cove.Errorf(cove.Forbidden, "cannot read %q in the folder: %w", name, err)
}
