package sqlite

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"

	"github.com/cove-sandbox/cove"
)

// A cursor is opaque to clients: what it is a place in, the place, checksum. The checksum is no protection, it only
// tells a typing error from a cursor.
const cursorSize = 1 + 8 + 8 + 4

// place is a place in a list.
type place struct{ seq, time int64 } // time in microseconds, where the list is by time

// list names the list of a cursor.
type list byte

const (
	ofExecutions list = 1
	ofAudit      list = 2
	ofDecisions  list = 3
	ofRuns       list = 4

	byTime list = 0x80 // the same by time
)

func encodeCursor(of list, at place) string {
	b := make([]byte, 0, cursorSize)
	b = append(b, byte(of))
	b = binary.BigEndian.AppendUint64(b, uint64(at.seq))
	b = binary.BigEndian.AppendUint64(b, uint64(at.time))
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return base64.RawURLEncoding.EncodeToString(b)
}

func decodeCursor(of list, s string) (place, error) {
	bad := cove.Errorf(cove.InvalidArgument, "%.64q is not a cursor of this list", s).
		WithHint("pass next_cursor of the page before, with the same filters, or leave it out to begin")
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != cursorSize || b[0] != byte(of) {
		return place{}, bad
	}
	at := place{int64(binary.BigEndian.Uint64(b[1:])), int64(binary.BigEndian.Uint64(b[9:]))}
	if at.seq < 1 || binary.BigEndian.Uint32(b[cursorSize-4:]) != crc32.ChecksumIEEE(b[:cursorSize-4]) {
		return place{}, bad
	}
	return at, nil
}
