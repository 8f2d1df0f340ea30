// Package debiantest makes signed repositories of Debian's packages for tests.
package debiantest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// Key is a key that signs.
type Key struct{ *openpgp.Entity }

// NewKey returns a key that was made a year before a time, with a lifetime from then; 0: it never expires.
func NewKey(t testing.TB, now time.Time, lifetime time.Duration) Key {
	t.Helper()
	e, err := openpgp.NewEntity("lab", "", "lab@lab.test", &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA,
		Time: func() time.Time { return now.AddDate(-1, 0, 0) }, KeyLifetimeSecs: uint32(lifetime.Seconds())})
	if err != nil {
		t.Fatal(err)
	}
	return Key{e}
}

// Ring returns the key without its secret, as apt has it.
func (k Key) Ring(t testing.TB) []byte {
	t.Helper()
	var ring bytes.Buffer
	if err := k.Serialize(&ring); err != nil {
		t.Fatal(err)
	}
	return ring.Bytes()
}

// Sign returns a text with the signatures of keys, made at a time.
func Sign(t testing.TB, text string, at time.Time, keys ...Key) []byte {
	t.Helper()
	var signed bytes.Buffer
	var private []*packet.PrivateKey
	for _, k := range keys {
		private = append(private, k.PrivateKey)
	}
	w, err := clearsign.EncodeMulti(&signed, private, &packet.Config{Time: func() time.Time { return at }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return append(signed.Bytes(), '\n')
}

// Suite describes a suite of a repository.
type Suite struct {
	Name     string
	Date     time.Time
	Until    time.Time                    // zero: none
	Packages map[string]map[string]string // contents of packages by path, by "main/binary-amd64"
	Plain    bool                         // without names that never change
}

// Files returns the files of the suite by their path below the base of the repository, without the packages.
func (s Suite) Files(t testing.TB, keys ...Key) map[string]string {
	t.Helper()
	files := map[string]string{}
	list := fmt.Sprintf("Origin: Lab\nSuite: %s\nCodename: x%s\nDate: %s\n", s.Name, s.Name,
		s.Date.UTC().Format("Mon, 02 Jan 2006 15:04:05 UTC"))
	if !s.Until.IsZero() {
		list += "Valid-Until: " + s.Until.UTC().Format("Mon, 02 Jan 2006 15:04:05 UTC") + "\n"
	}
	if !s.Plain {
		list += "Acquire-By-Hash: yes\n"
	}
	list += "SHA256:\n"
	for _, dir := range slices.Sorted(maps.Keys(s.Packages)) {
		var index strings.Builder
		for _, at := range slices.Sorted(maps.Keys(s.Packages[dir])) {
			fmt.Fprintf(&index, "Package: %s\nDescription: of the lab\n not a field: x\nFilename: %s\nSHA256: %x\n\n",
				strings.Split(path.Base(at), "_")[0], at, sha256.Sum256([]byte(s.Packages[dir][at])))
		}
		sum := fmt.Sprintf("%x", sha256.Sum256([]byte(index.String())))
		list += fmt.Sprintf(" %s %d %s/Packages\n", sum, index.Len(), dir)
		files["dists/"+s.Name+"/"+dir+"/Packages"] = index.String()
		if !s.Plain {
			files["dists/"+s.Name+"/"+dir+"/by-hash/SHA256/"+sum] = index.String()
		}
	}
	files["dists/"+s.Name+"/InRelease"] = string(Sign(t, list, s.Date, keys...))
	return files
}
