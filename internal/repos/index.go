package repos

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"os"
)

// Parts of an entry of git's index (gitformat-index): ten numbers of stat, of which the seventh and eighth are the
// owner and the group; the object's id; flags, of which one announces more.
const (
	indexHeader = 12
	indexStat   = 40
	indexOwner  = 28
	indexMore   = 0x4000
)

var errIndex = errors.New("the index of git is not as expected")

// ownIndex writes into an index whose files are: inside a sandbox they belong to its user, and git, which compares
// that, would read each file again at the first "git status". Nothing else of the index changes, nor does its time,
// which tells git what may have changed since.
func ownIndex(file string, owner, group uint32, long bool) error {
	info, err := os.Lstat(file)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := setOwner(data, owner, group, long); err != nil {
		return err
	}
	lock := file + ".lock" // as git takes it
	out, err := os.OpenFile(lock, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = out.Write(data)
	err = errors.Join(err, out.Close())
	if err == nil {
		err = os.Chtimes(lock, info.ModTime(), info.ModTime())
	}
	if err == nil {
		err = os.Rename(lock, file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(lock))
	}
	return nil
}

// setOwner changes an index in place. long says that ids are SHA-256.
func setOwner(data []byte, owner, group uint32, long bool) error {
	id := sha1.Size
	if long {
		id = sha256.Size
	}
	if len(data) < indexHeader+id || string(data[:4]) != "DIRC" {
		return errIndex
	}
	version, count := binary.BigEndian.Uint32(data[4:]), binary.BigEndian.Uint32(data[8:])
	if version < 2 || version > 4 {
		return errIndex
	}
	body := data[:len(data)-id]
	at := indexHeader
	for range count {
		head := indexStat + id + 2
		if len(body)-at < head {
			return errIndex
		}
		binary.BigEndian.PutUint32(body[at+indexOwner:], owner)
		binary.BigEndian.PutUint32(body[at+indexOwner+4:], group)
		if binary.BigEndian.Uint16(body[at+head-2:])&indexMore != 0 {
			head += 2
		}
		if version == 4 { // how much of the name before is kept, in bytes of seven bits
			for at+head < len(body) && body[at+head]&0x80 != 0 {
				head++
			}
			head++
		}
		if at+head > len(body) {
			return errIndex
		}
		name := bytes.IndexByte(body[at+head:], 0)
		if name < 0 {
			return errIndex
		}
		size := head + name + 1
		if version < 4 { // padded to a multiple of eight
			size = (size + 7) &^ 7
		}
		if at += size; at > len(body) {
			return errIndex
		}
	}
	if bytes.Count(data[len(body):], []byte{0}) == id { // index.skipHash
		return nil
	}
	if long {
		sum := sha256.Sum256(body)
		copy(data[len(body):], sum[:])
	} else {
		sum := sha1.Sum(body)
		copy(data[len(body):], sum[:])
	}
	return nil
}
