package packages

import (
	"net/url"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/pattern"
)

// File is a file of a package at a registry.
type File struct {
	URL    string
	Index  []string // URLs of indexes that may list the file, in the order in which they are asked
	Accept string   // for requests to them
	Most   int64    // bytes of an index at most
	Tool   string   // whose package it is, as for policy.Machine.Registry

	name, version string
	digest        func(f File, index string, body []byte) (Digest, bool)
}

// Digest holds the digests that an index states for a file: one at least.
type Digest struct {
	SHA256 string `json:"sha256,omitempty"` // in lower-case hex
	SHA512 string `json:"sha512,omitempty"` // in lower-case hex
	GoZip  string `json:"go_zip,omitempty"` // of the files in the archive of a Go module, as in go.sum
	GoMod  string `json:"go_mod,omitempty"` // of a go.mod, as in go.sum
}

// Matches reports whether a file with these digests is the file that d is of.
func (d Digest) Matches(file Digest) bool {
	return d != Digest{} && (d.SHA256 == "" || d.SHA256 == file.SHA256) && (d.SHA512 == "" || d.SHA512 == file.SHA512) &&
		(d.GoZip == "" || d.GoZip == file.GoZip) && (d.GoMod == "" || d.GoMod == file.GoMod)
}

// Digest returns the digest that the body of an index states for the file. index is the URL of the body.
func (f File) Digest(index string, body []byte) (Digest, bool) { return f.digest(f, index, body) }

var sha256Hex = pattern.New(`^[0-9a-f]{64}$`)

func digestOf256(hex string) (Digest, bool) {
	hex = strings.ToLower(hex)
	return Digest{SHA256: hex}, sha256Hex.Regexp().MatchString(hex)
}

func authority(u *url.URL) string {
	port := uint16(443)
	if u.Scheme == "http" {
		port = 80
	}
	h, port, err := policy.ParseAuthority(u.Host, port)
	if err != nil {
		return ""
	}
	return h.Authority(port)
}

// plain reports whether a path has only characters that need no escape, and no empty or special segments.
func plain(path string) bool {
	for _, c := range []byte(path) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && !strings.ContainsRune("/@._-+~", rune(c)) {
			return false
		}
	}
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	return strings.HasPrefix(path, "/") && !slices.ContainsFunc(segments, func(s string) bool {
		return s == "" || s == "." || s == ".."
	})
}
