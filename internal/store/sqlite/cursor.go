package sqlite

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"

	"github.com/cove-sandbox/cove"
)

// A cursor is opaque to clients: what it is a place in, sequence number, checksum. The checksum is no protection, it
// only tells a typing error from a cursor.
const cursorSize = 1 + 8 + 4

// list names the list of a cursor.
type list byte

const (
	ofExecutions list = 1
	ofAudit      list = 2
	ofDecisions  list = 3
	ofRuns       list = 4
)

func encodeCursor(of list, seq int64) string {
	b := make([]byte, 0, cursorSize)
	b = append(b, byte(of))
	b = binary.BigEndian.AppendUint64(b, uint64(seq))
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return base64.RawURLEncoding.EncodeToString(b)
}

func decodeCursor(of list, s string) (int64, error) {
	bad := cove.Errorf(cove.InvalidArgument, "%.64q is not a cursor of this list", s).
		WithHint("pass next_cursor of the page before, unchanged, or leave it out to begin")
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != cursorSize || b[0] != byte(of) {
		return 0, bad
	}
	seq := int64(binary.BigEndian.Uint64(b[1:]))
	if seq < 1 || binary.BigEndian.Uint32(b[9:]) != crc32.ChecksumIEEE(b[:9]) {
		return 0, bad
	}
	return seq, nil
}
