package packages

import (
	"net/url"
	"path"
	"slices"
	"strings"
)

// Suite is a suite of a repository of Debian's packages that this machine's apt uses.
type Suite struct {
	Base          string // URL without a slash at its end
	Name          string // below Base/dists: "bookworm", "bookworm-updates"
	Components    []string
	Architectures []string // of packages, without "all"
	Keyrings      [][]byte // OpenPGP keys that may sign the suite, binary or armored
	Fingerprints  []string // the only keys of them that may, in upper-case hex; none: each
}

// Release returns the URL of the suite's signed list of indexes.
func (s Suite) Release() string { return s.dir() + "InRelease" }

// ByHash returns the URL at which an index of the suite never changes, by its path in the list and its digest.
func (s Suite) ByHash(index, sha256 string) string {
	return s.dir() + path.Dir(index) + byHash + sha256
}

// Plain returns the URL of an index of the suite by its name.
func (s Suite) Plain(index string) string { return s.dir() + index }

func (s Suite) dir() string { return s.Base + "/dists/" + s.Name + "/" }

const byHash = "/by-hash/SHA256/"

// Signed is a file of which the signed list of a suite states the digest, or an index that is in such a list.
type Signed struct {
	URL    string
	Suites []Suite // that may have it, in the order of apt's sources

	Package string // its path below the base of the suites; empty: the file is an index
	Dir     string // of the index, below the suite's directory
	SHA256  string // of the index
}

// Indexes returns the directories of indexes of a suite that may list the package, below the suite's directory.
func (f Signed) Indexes(s Suite) (dirs []string) {
	of := strings.TrimSuffix(path.Base(f.Package), ".deb")
	of = of[strings.LastIndexByte(of, '_')+1:]
	architectures := slices.Clone(s.Architectures)
	switch {
	case of == "all": // listed among those of each architecture, or by themselves
		architectures = append(architectures, of)
	case slices.Contains(architectures, of):
		architectures = []string{of}
	default:
		return nil
	}
	components := s.Components
	if parts := strings.Split(f.Package, "/"); len(parts) > 2 && slices.Contains(components, parts[1]) {
		components = parts[1:2]
	}
	for _, component := range components {
		for _, a := range architectures {
			dirs = append(dirs, component+"/binary-"+a)
		}
	}
	return dirs
}

const maxSuites = 16 // that are asked for a file

// signedEscapes decodes the escapes with which apt writes characters that need none.
var signedEscapes = strings.NewReplacer("%2b", "+", "%2B", "+", "%7e", "~", "%7E", "~", "%5f", "_", "%5F", "_")

// FindSigned returns the file at a URL that suites may vouch for. The transport may be plain http: signatures vouch. It
// asks for the suites only where the URL has the form of such a file.
func FindSigned(of *url.URL, suites func() []Suite) (f Signed, ok bool) {
	at := signedEscapes.Replace(of.EscapedPath())
	if of.RawQuery != "" || of.User != nil || !plain(at) ||
		!strings.HasSuffix(at, ".deb") && !strings.Contains(at, byHash) {
		return Signed{}, false
	}
	for _, s := range suites() {
		base, err := url.Parse(s.Base)
		if err != nil || base.Scheme != of.Scheme || authority(base) != authority(of) {
			continue
		}
		below, inside := strings.CutPrefix(at, base.Path+"/")
		if !inside {
			continue
		}
		found := Signed{URL: s.Base + "/" + below}
		dir, sum, isIndex := strings.Cut(below, byHash)
		dir, ofSuite := strings.CutPrefix(dir, "dists/"+s.Name+"/")
		switch {
		case isIndex && ofSuite && sha256Hex.Regexp().MatchString(sum):
			found.Dir, found.SHA256 = dir, sum
		case strings.HasSuffix(below, ".deb") && !strings.HasPrefix(below, "dists/"):
			if found.Package = below; len(found.Indexes(s)) == 0 {
				continue
			}
		default:
			continue
		}
		if f.URL == "" {
			f = found
		}
		if f.URL == found.URL && f.Dir == found.Dir && len(f.Suites) < maxSuites {
			f.Suites = append(f.Suites, s)
		}
	}
	return f, len(f.Suites) > 0
}
