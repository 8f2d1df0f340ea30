// Package debian reads the repositories of Debian's packages: the signed list of a suite's indexes, which the keys of
// this machine's apt must have signed, and indexes of packages. It does no I/O.
package debian

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/cove-sandbox/cove/internal/packages"
	"github.com/cove-sandbox/cove/internal/pattern"
)

const (
	// MaxRelease bounds a list of indexes, in bytes.
	MaxRelease = 4 << 20

	maxSignatures = 16
	maxFiles      = 50_000 // of a list
	slack         = 10 * time.Minute
)

// Release is the list of a suite's indexes.
type Release struct {
	Date   time.Time
	Until  time.Time // zero: none is stated
	ByHash bool      // indexes are at names that never change, too

	files map[string]file
}

type file struct {
	sha256 string
	size   int64
}

var sha256Hex = pattern.New(`^[0-9a-f]{64}$`)

var (
	errForm      = errors.New("it is not one signed text")
	errUnsigned  = errors.New("no key of this machine's apt has signed it")
	errNoKeys    = errors.New("this machine's apt has no key for it")
	errTooLarge  = errors.New("it is too large")
	errDate      = errors.New("it has no date")
	errTooEarly  = errors.New("it is of the future")
	errExpired   = errors.New("it has expired")
	beginOfClear = []byte("-----BEGIN PGP SIGNED MESSAGE-----")
)

// ReadRelease returns the list in a suite's InRelease that a key of the suite has signed.
func ReadRelease(inRelease []byte, s packages.Suite, now time.Time) (*Release, error) {
	if len(inRelease) > MaxRelease {
		return nil, errTooLarge
	}
	if !bytes.HasPrefix(inRelease, beginOfClear) {
		return nil, errForm
	}
	block, rest := clearsign.Decode(inRelease)
	if block == nil || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errForm
	}
	keys, err := keysOf(s)
	if err != nil {
		return nil, err
	}
	if err := verify(block, keys, now); err != nil {
		return nil, err
	}
	return parse(string(block.Bytes), s.Name) // the bytes that are signed
}

// keysOf returns the keys that may sign a suite.
func keysOf(s packages.Suite) (keys openpgp.EntityList, err error) {
	for _, ring := range s.Keyrings {
		read := openpgp.ReadKeyRing
		if bytes.Contains(ring, []byte("-----BEGIN PGP")) {
			read = openpgp.ReadArmoredKeyRing
		}
		some, err := read(bytes.NewReader(ring))
		if err != nil {
			continue // apt, too, goes by the others
		}
		keys = append(keys, some...)
	}
	if len(s.Fingerprints) > 0 {
		keys = slices.DeleteFunc(keys, func(e *openpgp.Entity) bool {
			return !slices.Contains(s.Fingerprints, strings.ToUpper(hex.EncodeToString(e.PrimaryKey.Fingerprint)))
		})
	}
	if len(keys) == 0 {
		return nil, errNoKeys
	}
	return keys, nil
}

// verify reports whether one signature at least is by one of the keys, and good. Repositories sign with old and new
// keys at a time.
func verify(block *clearsign.Block, keys openpgp.EntityList, now time.Time) error {
	if block.ArmoredSignature.Type != openpgp.SignatureType {
		return errForm
	}
	config := &packet.Config{Time: func() time.Time { return now }}
	all := packet.NewReader(block.ArmoredSignature.Body)
	failure := errUnsigned
	for range maxSignatures {
		next, err := all.Next()
		if err != nil {
			return failure
		}
		signature, ok := next.(*packet.Signature)
		if !ok {
			continue
		}
		var one bytes.Buffer
		if signature.Serialize(&one) != nil {
			continue
		}
		_, err = openpgp.CheckDetachedSignature(keys, bytes.NewReader(block.Bytes), &one, config)
		if err == nil {
			return nil
		}
		failure = fmt.Errorf("%w: %w", errUnsigned, err)
	}
	return failure
}

// parse reads the fields of a list that is of the suite with a name.
func parse(text, name string) (*Release, error) {
	r := &Release{files: map[string]file{}}
	field, of := "", false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \t\r\n")
		if line == "" {
			continue
		}
		if line[0] == ' ' || line[0] == '\t' {
			if field == "sha256" {
				if err := r.list(line); err != nil {
					return nil, err
				}
			}
			continue
		}
		var value string
		field, value, _ = strings.Cut(line, ":")
		field, value = strings.ToLower(field), strings.TrimSpace(value)
		var err error
		switch field {
		case "suite", "codename":
			of = of || value == name
		case "date":
			r.Date, err = date(value)
		case "valid-until":
			r.Until, err = date(value)
		case "acquire-by-hash":
			r.ByHash = value == "yes"
		}
		if err != nil {
			return nil, err
		}
	}
	if !of {
		return nil, fmt.Errorf("it is not that of the suite %s", name)
	}
	if r.Date.IsZero() {
		return nil, errDate
	}
	return r, nil
}

// list takes a line " DIGEST SIZE PATH".
func (r *Release) list(line string) error {
	f := strings.Fields(line)
	if len(f) != 3 || !sha256Hex.Regexp().MatchString(f[0]) {
		return fmt.Errorf("%w: %.80q", errForm, line)
	}
	size, err := strconv.ParseInt(f[1], 10, 64)
	if err != nil || size < 0 {
		return fmt.Errorf("%w: %.80q", errForm, line)
	}
	if len(r.files) >= maxFiles {
		return errTooLarge
	}
	r.files[f[2]] = file{f[0], size}
	return nil
}

// date reads a date of a Release: that of RFC 2822, in UTC.
func date(text string) (time.Time, error) {
	for _, form := range []string{"Mon, _2 Jan 2006 15:04:05 MST", "Mon, _2 Jan 2006 15:04:05 -0700"} {
		t, err := time.Parse(form, text)
		if err != nil {
			continue
		}
		if _, offset := t.Zone(); offset == 0 && !strings.HasSuffix(text, "UTC") && !strings.HasSuffix(text, "GMT") &&
			!strings.HasSuffix(text, "+0000") {
			continue // a zone that is not known has no offset
		}
		return t.UTC(), nil
	}
	return time.Time{}, fmt.Errorf("%w: %.80q", errDate, text)
}

// Current returns why a list is not to be believed at a time, nil if it is.
func (r *Release) Current(now time.Time) error {
	switch {
	case r.Date.After(now.Add(slack)):
		return errTooEarly
	case !r.Until.IsZero() && now.After(r.Until):
		return errExpired
	}
	return nil
}

// States reports whether the list has an index with a digest in a directory.
func (r *Release) States(dir, sha256 string) bool {
	for at, f := range r.files {
		if f.sha256 == sha256 && path.Dir(at) == dir {
			return true
		}
	}
	return false
}

// Packages returns the index of packages in a directory, in the form that is the smallest; false if there is none.
func (r *Release) Packages(dir string) (at, sha256 string, size int64, ok bool) {
	for _, name := range []string{"/Packages.xz", "/Packages.gz", "/Packages"} {
		if f, listed := r.files[dir+name]; listed {
			return dir + name, f.sha256, f.size, true
		}
	}
	return "", "", 0, false
}
