package debian

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"

	"github.com/cove-sandbox/cove/internal/packages"
	"github.com/cove-sandbox/cove/internal/packages/debian/debiantest"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

const (
	hello    = "pool/main/h/hello/hello_2.10-3_amd64.deb"
	helloSum = "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9"
	release  = "Origin: Lab\nSuite: stable\nCodename: bookworm\nDate: Thu, 30 Apr 2026 12:00:00 UTC\n" +
		"Valid-Until: Thu, 07 May 2026 12:00:00 UTC\nAcquire-By-Hash: yes\n" +
		"MD5Sum:\n 00 1 main/binary-amd64/Packages\nSHA256:\n " + helloSum +
		" 12 main/binary-amd64/Packages\n " + helloSum + "  8 main/binary-amd64/Packages.xz\nDescription: x\n"
)

func armored(t *testing.T, ring []byte) []byte {
	t.Helper()
	var text bytes.Buffer
	w, err := armor.Encode(&text, openpgp.PublicKeyType, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.Write(ring)
	w.Close()
	return text.Bytes()
}

// TestRelease: a list is what a key of the suite has signed, and nothing around it.
func TestRelease(t *testing.T) {
	key, other := debiantest.NewKey(t, now, 0), debiantest.NewKey(t, now, 0)
	old := debiantest.NewKey(t, now, 300*24*time.Hour) // it has expired
	ring := key.Ring(t)
	signed := func(text string, keys ...debiantest.Key) string {
		return string(debiantest.Sign(t, text, now.Add(-time.Hour), keys...))
	}
	good := signed(release, key)
	by := func(rings ...[]byte) packages.Suite { return packages.Suite{Name: "stable", Keyrings: rings} }
	only := func(fingerprint string) packages.Suite {
		return packages.Suite{Name: "stable", Keyrings: [][]byte{ring}, Fingerprints: []string{fingerprint}}
	}
	stable, dated := by(ring), "Suite: stable\nDate: Thu, 30 Apr 2026 12:00:00 UTC\n"
	fingerprint := fmt.Sprintf("%X", key.PrimaryKey.Fingerprint)
	for name, c := range map[string]struct {
		text  string
		suite packages.Suite
		ok    bool
	}{
		"signed":                {good, packages.Suite{Name: "bookworm", Keyrings: [][]byte{ring}}, true},
		"by its other name":     {good, stable, true},
		"another suite":         {good, packages.Suite{Name: "trixie", Keyrings: [][]byte{ring}}, false},
		"an armored key":        {good, packages.Suite{Name: "stable", Keyrings: [][]byte{armored(t, ring)}}, true},
		"one of the keys":       {good, by([]byte("damaged"), other.Ring(t), ring), true},
		"the fingerprint":       {good, only(fingerprint), true},
		"another fingerprint":   {good, only("00"), false},
		"another key":           {good, packages.Suite{Name: "stable", Keyrings: [][]byte{other.Ring(t)}}, false},
		"no key":                {good, packages.Suite{Name: "stable"}, false},
		"a damaged key":         {good, packages.Suite{Name: "stable", Keyrings: [][]byte{ring[:40]}}, false},
		"two signatures":        {signed(release, other, key), stable, true},
		"an expired key before": {signed(release, old, key), by(old.Ring(t), ring), true},
		"an expired key":        {signed(release, old), by(old.Ring(t)), false},
		"changed":               {strings.Replace(good, "main/binary", "evil/binary", 1), stable, false},
		"text before":           {"Suite: stable\n" + good, stable, false},
		"text after":            {good + "SHA256:\n", stable, false},
		"two texts":             {good + good, stable, false},
		"not signed":            {release, stable, false},
		"no signature":          {good[:strings.Index(good, "-----BEGIN PGP SIG")], stable, false},
		"an empty one":          {"", stable, false},
		"a large one":           {good + strings.Repeat("\n", MaxRelease), stable, false},
		"no date":               {signed("Suite: stable\nSHA256:\n", key), stable, false},
		"an odd date":           {signed(strings.Replace(dated, "UTC", "XYZ", 1), key), stable, false},
		"an odd line":           {signed(dated+"SHA256:\n 00 x\n", key), stable, false},
	} {
		r, err := ReadRelease([]byte(c.text), c.suite, now)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !c.ok {
			continue
		}
		at, sum, size, ok := r.Packages("main/binary-amd64")
		if at != "main/binary-amd64/Packages.xz" || sum != helloSum || size != 8 || !ok || !r.ByHash ||
			!r.States("main/binary-amd64", helloSum) || r.States("main", helloSum) || r.States("main/binary-amd64", "00") {
			t.Errorf("%s: %q %q %d %v %+v", name, at, sum, size, ok, r)
		}
		for at, current := range map[time.Time]bool{now: true, now.AddDate(0, 0, 7): false, now.AddDate(0, 0, -7): false} {
			if err := r.Current(at); (err == nil) != current {
				t.Errorf("%s: at %s %v", name, at, err)
			}
		}
	}
}

func stanza(path, sum string) string {
	return "Package: x\nDepends: " + strings.Repeat("y, ", 50_000) +
		"\nFilename: " + path + "\nSize: 1\nSHA256: " + sum + "\n"
}

// TestIndex: an index states one digest of a path, or none.
func TestIndex(t *testing.T) {
	other := strings.Repeat("0", 64)
	xz, err := base64.StdEncoding.DecodeString("/Td6WFoAAATm1rRGAgAhARYAAAB0L+Wj4AB7AHNdACMaSYZqNVWl+K42VPXhx4Cc0V9p2hR2" +
		"3dQh90R2BkFZ3MZpYU/Fo1ntDbt6invaxoCEx5rbK0Hr243k+Vajb96bXubLWdeugNCtD0HmEOgCIEMKxs0SPRnOLM9KUu2IuKzUo0++sq6o" +
		"rCeAY1buNOpiAAAAAJ0p6iDMmx6fAAGPAXwAAABERDowscRn+wIAAAAABFla")
	if err != nil {
		t.Fatal(err)
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	z.Write([]byte(stanza(hello, helloSum)))
	z.Close()
	for name, c := range map[string]struct{ file, body, want string }{
		"plain":          {"Packages", stanza("pool/a_1_amd64.deb", other) + "\n" + stanza(hello, helloSum), helloSum},
		"in capitals":    {"Packages", "filename: " + hello + "\nSHA256: " + strings.ToUpper(helloSum) + "\n\n\n", helloSum},
		"gz":             {"Packages.gz", zipped.String(), helloSum},
		"twice the same": {"Packages", stanza(hello, helloSum) + "\n" + stanza(hello, helloSum), helloSum},
		"twice":          {"Packages", stanza(hello, helloSum) + "\n" + stanza(hello, other), ""},
		"twice, around": {"Packages", stanza(hello, other) + "\n" + stanza(hello, helloSum) + "\n" +
			stanza(hello, other), ""},
		"another":        {"Packages", stanza(hello+"x", helloSum), ""},
		"in two stanzas": {"Packages", "Filename: " + hello + "\n\nSHA256: " + helloSum + "\n", ""},
		"continued":      {"Packages", "Description: x\n Filename: " + hello + "\nSHA256: " + helloSum + "\n", ""},
		"MD5":            {"Packages", "Filename: " + hello + "\nMD5sum: 00\n", ""},
		"half a digest":  {"Packages", stanza(hello, helloSum[:32]), ""},
		"empty":          {"Packages", "", ""},
		"a long line": {"Packages", "Depends: " + strings.Repeat("y", maxLine+1) + "\n" +
			stanza(hello, helloSum), "refused"},
		"not gz":         {"Packages.gz", stanza(hello, helloSum), "refused"},
		"half of gz":     {"Packages.gz", zipped.String()[:zipped.Len()/2], "refused"},
		"not xz":         {"Packages.xz", stanza(hello, helloSum), "refused"},
		"xz":             {"Packages.xz", string(xz), helloSum},
		"half of xz":     {"Packages.xz", string(xz[:len(xz)/2]), "refused"},
		"a large one":    {"Packages", strings.Repeat("x", MaxIndex+1), "refused"},
		"too many":       {"Packages.gz", many(t), "refused"},
		"more than fits": {"Packages.gz", bomb(t), ""},
	} {
		x, err := ReadIndex([]byte(c.body), c.file)
		if (err != nil) != (c.want == "refused") {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err != nil {
			continue
		}
		got, ok := x.SHA256(hello)
		if got != c.want || ok != (c.want != "") {
			t.Errorf("%s: %q, %v", name, got, ok)
		}
		again, ok := ReadTable(x.Table(helloSum), helloSum)
		if !ok {
			t.Fatalf("%s: its table is none", name)
		}
		if got, _ := again.SHA256(hello); got != c.want || again.Len() != x.Len() {
			t.Errorf("%s: after its table %q", name, got)
		}
	}
}

func many(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for i := range maxPackages + 1 {
		fmt.Fprintf(z, "Filename: pool/%d.deb\nSHA256: %s\n\n", i, helloSum)
	}
	z.Close()
	return b.String()
}

// bomb is an index of which a small part fits, and the package is in the rest.
func bomb(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	lines := []byte(strings.Repeat("X: "+strings.Repeat("y", 1000)+"\n", 1000))
	for n := 0; n <= maxUnpacked; n += len(lines) {
		z.Write(lines)
	}
	fmt.Fprint(z, "\n", stanza(hello, helloSum))
	z.Close()
	return b.String()
}

// TestTable: what is not the table of an index is not taken for it.
func TestTable(t *testing.T) {
	x, err := ReadIndex([]byte(stanza(hello, helloSum)+"\n"+stanza("pool/b.deb", helloSum)), "Packages")
	if err != nil {
		t.Fatal(err)
	}
	table := x.Table(helloSum)
	unsorted := append(append(append([]byte(nil), table[:32]...), table[32+entrySize:]...), table[32:32+entrySize]...)
	for name, c := range map[string]struct {
		table []byte
		of    string
	}{"another index": {table, strings.Repeat("0", 64)}, "cut": {table[:len(table)-1], helloSum}, "empty": {nil, helloSum},
		"unsorted": {unsorted, helloSum}} {
		if _, ok := ReadTable(c.table, c.of); ok {
			t.Errorf("%s is a table", name)
		}
	}
}

// FuzzRelease: what no key has signed is no list.
func FuzzRelease(f *testing.F) {
	key := debiantest.NewKey(f, now, 0)
	good := debiantest.Sign(f, release, now.Add(-time.Hour), key)
	suite := packages.Suite{Name: "stable", Keyrings: [][]byte{key.Ring(f)}}
	want, err := ReadRelease(good, suite, now)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(release))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := ReadRelease(text, suite, now)
		if err == nil && (len(got.files) != len(want.files) || !got.Date.Equal(want.Date)) {
			t.Errorf("%q is a list", text)
		}
		_, _ = parse(string(text), "stable")
	})
}

// FuzzIndex: whatever an index says, what it states is a digest, and its table states the same.
func FuzzIndex(f *testing.F) {
	f.Add([]byte(stanza(hello, helloSum)), 0)
	f.Add([]byte{0x1f, 0x8b}, 1)
	f.Add([]byte("\xfd7zXZ\x00"), 2)
	f.Fuzz(func(t *testing.T, body []byte, form int) {
		x, err := ReadIndex(body, []string{"Packages", "Packages.gz", "Packages.xz"}[uint(form)%3])
		if err != nil {
			return
		}
		sum, ok := x.SHA256(hello)
		if ok && !sha256Hex.MatchString(sum) {
			t.Errorf("%q", sum)
		}
		again, is := ReadTable(x.Table(helloSum), helloSum)
		if !is {
			t.Fatal("its table is none")
		}
		if same, _ := again.SHA256(hello); same != sum {
			t.Errorf("%q, %q", sum, same)
		}
		_, _ = ReadTable(body, helloSum)
	})
}
