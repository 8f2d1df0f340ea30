package gittest

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1" // what git names objects and ends packs with
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/adler32"
	"strings"
)

// Kind is that of an object in a pack (gitformat-pack(5)).
type Kind byte

// Kinds of objects.
const (
	Commit   Kind = 1
	Tree     Kind = 2
	Blob     Kind = 3
	ofsDelta Kind = 6
)

var kinds = map[Kind]string{Commit: "commit", Tree: "tree", Blob: "blob"}

// ObjectID is the id of an object, in hexadecimal.
func ObjectID(kind Kind, content []byte) string {
	h := sha1.New()
	fmt.Fprintf(h, "%s %d\x00", kinds[kind], len(content))
	h.Write(content)
	return hex.EncodeToString(h.Sum(nil))
}

// Pack is one that no git would write. The zero value is empty.
type Pack struct {
	body    bytes.Buffer
	objects uint32
}

// Add adds an object, and gives its id.
func (p *Pack) Add(kind Kind, content []byte) string {
	p.Claim(kind, int64(len(content)), content)
	return ObjectID(kind, content)
}

// Claim adds an object that is said to have so many bytes, and where it is.
func (p *Pack) Claim(kind Kind, size int64, content []byte) (at int64) {
	at = p.head(kind, size)
	p.write(content)
	return at
}

// Delta adds an object that is like the one at a place, of so many bytes, and has
// something more at its end: at most 127 bytes. It gives where it is.
func (p *Pack) Delta(base, size int64, more []byte) (at int64) {
	var d []byte
	d = binary.AppendUvarint(d, uint64(size))
	d = binary.AppendUvarint(d, uint64(size)+uint64(len(more)))
	d = append(d, 0x80|0x70, byte(size), byte(size>>8), byte(size>>16)) // copy from 0
	d = append(d, byte(len(more)))
	d = append(d, more...)
	at = p.head(ofsDelta, int64(len(d)))
	back := uint64(at - base)
	offset := []byte{byte(back & 0x7f)}
	for back >>= 7; back > 0; back >>= 7 {
		back--
		offset = append([]byte{0x80 | byte(back&0x7f)}, offset...)
	}
	p.body.Write(offset)
	p.write(d)
	return at
}

func (p *Pack) head(kind Kind, size int64) (at int64) {
	at = int64(p.body.Len()) + 12
	p.objects++
	first := byte(kind)<<4 | byte(size&0x0f)
	for size >>= 4; size > 0; size >>= 7 {
		p.body.WriteByte(first | 0x80)
		first = byte(size & 0x7f)
	}
	p.body.WriteByte(first)
	return at
}

// write writes in zlib's format: what is small as it stands, which is fast.
func (p *Pack) write(content []byte) {
	if len(content) > 1<<10 {
		z := zlib.NewWriter(&p.body)
		z.Write(content)
		z.Close()
		return
	}
	n := uint16(len(content))
	p.body.Write([]byte{0x78, 0x01, 0x01, byte(n), byte(n >> 8), byte(^n), byte(^n >> 8)})
	p.body.Write(content)
	p.body.Write(binary.BigEndian.AppendUint32(nil, adler32.Checksum(content)))
}

// String is the whole pack, with its checksum.
func (p *Pack) String() string {
	var b strings.Builder
	b.WriteString("PACK\x00\x00\x00\x02")
	b.Write(binary.BigEndian.AppendUint32(nil, p.objects))
	b.Write(p.body.Bytes())
	sum := sha1.Sum([]byte(b.String()))
	b.Write(sum[:])
	return b.String()
}

// CommitText is a commit's content.
func CommitText(tree string, parents ...string) []byte {
	text := "tree " + tree + "\n"
	for _, id := range parents {
		text += "parent " + id + "\n"
	}
	return []byte(text + "author A <a@git.test> 1 +0000\ncommitter A <a@git.test> 1 +0000\n\nx\n")
}

// Entry is one of a tree's content: "100644", a name and an id.
func Entry(mode, name, id string) []byte {
	raw, err := hex.DecodeString(id)
	if err != nil {
		panic(err)
	}
	return append([]byte(mode+" "+name+"\x00"), raw...)
}
