package model

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
)

// frames parse AWS's event streams (application/vnd.amazon.eventstream) as they pass: of each message the payload,
// which is JSON or has JSON in it. Memory is bounded by maxFrame; the payload of a longer message is not looked at.
//
// A message is its length, the length of its headers, a checksum of these two, the headers, the payload and a checksum,
// all in big endian (smithy.io, "Amazon event stream specification").
type frames struct {
	payload func(p []byte) // nil: it is too long

	head    [prelude]byte
	headLen int
	skip    int // bytes of headers that come
	left    int // bytes of payload that come
	tail    int // bytes of the checksum that come
	data    []byte
	large   bool
	bad     bool // this is no event stream: nothing is looked at any more
}

const (
	prelude     = 12
	checksum    = 4
	maxMessage  = 24 << 20  // bytes, by the specification
	maxHeaders  = 128 << 10 // bytes, by the specification
	maxFrame    = 256 << 10 // bytes of a payload that is looked at; one with usage has a few hundred
	frameStream = "application/vnd.amazon.eventstream"
)

func (f *frames) write(p []byte) {
	for len(p) > 0 && !f.bad {
		var n int
		switch {
		case f.headLen < prelude:
			n = copy(f.head[f.headLen:], p)
			if f.headLen += n; f.headLen == prelude {
				f.begin()
			}
		case f.skip > 0:
			n = min(f.skip, len(p))
			f.skip -= n
		case f.left > 0:
			n = min(f.left, len(p))
			f.left -= n
			if !f.large {
				f.data = append(f.data, p[:n]...)
			}
		default:
			n = min(f.tail, len(p))
			f.tail -= n
		}
		p = p[n:]
		if !f.bad && f.headLen == prelude && f.skip+f.left+f.tail == 0 {
			f.end()
		}
	}
}

func (f *frames) begin() {
	total, headers := binary.BigEndian.Uint32(f.head[:]), binary.BigEndian.Uint32(f.head[4:])
	if crc32.ChecksumIEEE(f.head[:8]) != binary.BigEndian.Uint32(f.head[8:]) || total > maxMessage ||
		headers > maxHeaders || total < prelude+headers+checksum {
		f.bad = true
		return
	}
	f.skip, f.left, f.tail = int(headers), int(total-headers)-prelude-checksum, checksum
	f.data, f.large = f.data[:0], f.left > maxFrame
}

func (f *frames) end() {
	f.headLen = 0
	if f.large {
		f.payload(nil)
	} else {
		f.payload(f.data)
	}
}

// framed returns the JSON in a payload: its bytes in base64, where InvokeModelWithResponseStream sends those of the
// model, or else itself, as ConverseStream sends it.
func framed(payload []byte) []byte {
	var chunk struct {
		Bytes string `json:"bytes"`
	}
	if json.Unmarshal(payload, &chunk) != nil || chunk.Bytes == "" {
		return payload
	}
	inner, err := base64.StdEncoding.DecodeString(chunk.Bytes)
	if err != nil {
		return nil
	}
	return inner
}
