package store

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cove-sandbox/cove/internal/egress/decision"
)

// Chain returns the hash of r when it follows a record whose hash is previous (empty for the first): SHA-256, hex, over
// the previous hash and every field but Hash, each with its length in front so that no two records read alike.
func Chain(previous string, r Record) string {
	h := sha256.New()
	var n [8]byte
	number := func(v uint64) {
		binary.BigEndian.PutUint64(n[:], v)
		h.Write(n[:])
	}
	number(uint64(r.Seq))
	number(uint64(r.Time.UnixMicro()))
	for _, s := range []string{previous, r.Who, r.Action, r.Object, r.Verdict, r.Detail} {
		number(uint64(len(s)))
		h.Write([]byte(s))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Normal returns r as every store keeps it: time in UTC to the microsecond,
// text valid UTF-8 and at most MaxDetail bytes.
func (r Record) Normal() Record {
	r.Time = r.Time.UTC().Truncate(time.Microsecond)
	for _, s := range []*string{&r.Who, &r.Action, &r.Object, &r.Verdict, &r.Detail} {
		*s, _ = Cut(*s, MaxDetail)
	}
	return r
}

// NormalDecision returns d as every store keeps it: time in UTC to the microsecond, text valid UTF-8 and at most
// MaxField bytes, a count of at least one. A path that is cut ends with "…".
func NormalDecision(d decision.Decision) decision.Decision {
	d.Time = d.Time.UTC().Truncate(time.Microsecond)
	d.Count = max(d.Count, 1)
	if path, cut := Cut(d.Path, MaxField-len("…")); cut {
		d.Path = path + "…"
	}
	for _, s := range []*string{&d.Execution, &d.Sandbox, &d.Client, (*string)(&d.Entry), (*string)(&d.Protocol), &d.Host,
		&d.Method, &d.Path, (*string)(&d.Verdict), (*string)(&d.Stage), &d.Rule, &d.Reason, &d.Remedy} {
		*s, _ = Cut(*s, MaxField)
	}
	return d
}

// Cut returns s as valid UTF-8 of at most limit bytes, and whether it dropped anything. It does not split a character.
func Cut(s string, limit int) (string, bool) {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s, false
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit], true
}
