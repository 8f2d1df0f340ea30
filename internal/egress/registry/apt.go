package registry

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net/url"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove/internal/packages"
	"github.com/cove-sandbox/cove/internal/pattern"
)

// aptSource is a line of sources.list, or a stanza of a .sources file.
type aptSource struct {
	types, uris, suites, components, architectures []string

	signedBy string // paths and fingerprints, or one armored key
}

// aptPlaces are the files of apt, by its own configuration.
type aptPlaces struct{ list, parts, trusted, trustedParts, architecture string }

func (r *Reader) aptPlaces(ctx context.Context) aptPlaces {
	p := aptPlaces{"/etc/apt/sources.list", "/etc/apt/sources.list.d", "/etc/apt/trusted.gpg", "/etc/apt/trusted.gpg.d",
		cmp.Or(map[string]string{"386": "i386", "arm": "armhf", "ppc64le": "ppc64el"}[runtime.GOARCH], runtime.GOARCH)}
	out, err := r.run(ctx, "apt-config", "shell", "list", "Dir::Etc::sourcelist/f", "parts", "Dir::Etc::sourceparts/d",
		"trusted", "Dir::Etc::trusted/f", "trustedparts", "Dir::Etc::trustedparts/d", "architecture", "APT::Architecture")
	if err != nil {
		return p // the files may be those of another machine's apt
	}
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		at := map[string]*string{"list": &p.list, "parts": &p.parts, "trusted": &p.trusted,
			"trustedparts": &p.trustedParts, "architecture": &p.architecture}[name]
		if at != nil {
			*at = strings.Trim(value, "'")
		}
	}
	return p
}

// aptFile is a file of apt's sources.
type aptFile struct {
	name    string
	sources []aptSource
}

// aptFiles reads the sources of apt, in both formats (sources.list(5)).
func (r *Reader) aptFiles(p aptPlaces) (all []aptFile, err error) {
	for _, pattern := range []string{p.list, p.parts + "/*.list", p.parts + "/*.sources"} {
		files, err := filepath.Glob(filepath.Join(r.root, pattern))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			text, err := readFile(file)
			if err != nil {
				return nil, err
			}
			sources := aptLines(text)
			if strings.HasSuffix(file, ".sources") {
				sources = aptStanzas(text)
			}
			all = append(all, aptFile{filepath.Base(file), sources})
		}
	}
	return all, nil
}

// apt reads the sources of apt, and their lists of mirrors (apt-transport-mirror(1)).
func (r *Reader) apt(ctx context.Context) ([]origin, error) {
	files, err := r.aptFiles(r.aptPlaces(ctx))
	if err != nil {
		return nil, err
	}
	var all []origin
	for _, f := range files {
		for _, s := range f.sources {
			for _, uri := range s.uris {
				more, err := r.aptURI(uri, f.name)
				if err != nil {
					return nil, err
				}
				all = append(all, more...)
			}
		}
	}
	return all, nil
}

// aptURI returns the targets of one URI of a source; a list of mirrors has several.
func (r *Reader) aptURI(uri, from string) ([]origin, error) {
	uri = strings.TrimPrefix(uri, "mirror+")
	list, isFile := strings.CutPrefix(uri, "file:")
	switch {
	case isFile:
		text, err := readFile(filepath.Join(r.root, strings.TrimPrefix(list, "//")))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil // a local directory of packages, or a missing list
		}
		var all []origin
		for line := range strings.Lines(text) {
			if f := strings.Fields(line); err == nil && len(f) > 0 && strings.Contains(f[0], "://") {
				all = append(all, origin{f[0], from})
			}
		}
		return all, nil
	case strings.HasPrefix(uri, "mirror://"):
		uri = "http" + strings.TrimPrefix(uri, "mirror")
	}
	return []origin{{uri, from}}, nil
}

var (
	aptLine    = pattern.New(`^(deb|deb-src)\s+(?:\[([^\]]*)\]\s*)?(.+)$`)
	aptBracket = pattern.New(`\[[^\]]*\]`)
	aptFinger  = pattern.New(`^[0-9A-Fa-f]{40}!?$`)
)

// aptLines returns the sources of lines "deb [options] URI suite component…".
func aptLines(text string) (all []aptSource) {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		m := aptLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		f := strings.Fields(aptBracket.Regexp().ReplaceAllString(m[3], " "))
		if len(f) == 0 {
			continue
		}
		s := aptSource{types: m[1:2], uris: f[:1]}
		if len(f) > 1 {
			s.suites, s.components = f[1:2], f[2:]
		}
		for _, option := range strings.Fields(m[2]) {
			switch name, value, _ := strings.Cut(option, "="); strings.ToLower(name) {
			case "arch":
				s.architectures = strings.Split(value, ",")
			case "signed-by":
				s.signedBy = strings.ReplaceAll(value, ",", " ")
			}
		}
		all = append(all, s)
	}
	return all
}

// aptStanzas returns the sources of enabled stanzas (deb822(5)).
func aptStanzas(text string) (all []aptSource) {
	fields, field := map[string]string{}, ""
	end := func() {
		if strings.TrimSpace(fields["enabled"]) != "no" && fields["uris"] != "" {
			of := func(name string) []string { return strings.Fields(fields[name]) }
			all = append(all, aptSource{types: of("types"), uris: of("uris"), suites: of("suites"),
				components: of("components"), architectures: of("architectures"), signedBy: fields["signed-by"]})
		}
		fields, field = map[string]string{}, ""
	}
	for line := range strings.Lines(text) {
		switch trimmed := strings.TrimSpace(line); {
		case strings.HasPrefix(line, "#"):
		case trimmed == "":
			end()
		case line[0] == ' ' || line[0] == '\t':
			if trimmed == "." { // an empty line
				trimmed = ""
			}
			fields[field] += trimmed + "\n"
		default:
			name, value, _ := strings.Cut(trimmed, ":")
			field = strings.ToLower(name)
			fields[field] = strings.TrimSpace(value) + "\n"
		}
	}
	end()
	return all
}

const maxSuites = 256 // of all sources

// Suites returns the suites of this machine's apt, with the keys that sign them. A machine without apt has none. Of a
// suite without a key nothing can be verified; it is left out, as are repositories without suites.
func (r *Reader) Suites(ctx context.Context) []packages.Suite {
	places := r.aptPlaces(ctx)
	files, err := r.aptFiles(places)
	if err != nil {
		return nil
	}
	var all []packages.Suite
	trusted := r.trustedKeys(places)
	for _, f := range files {
		for _, s := range f.sources {
			if !slices.Contains(s.types, "deb") {
				continue
			}
			of := packages.Suite{Components: s.components, Architectures: s.architectures}
			if len(of.Architectures) == 0 {
				of.Architectures = []string{places.architecture}
			}
			if of.Keyrings, of.Fingerprints = r.signers(s.signedBy, trusted); len(of.Keyrings) == 0 {
				continue
			}
			for _, uri := range s.uris {
				origins, _ := r.aptURI(uri, f.name) // without them nothing is kept
				for _, o := range origins {
					all = append(all, suitesAt(of, o.url, s.suites)...)
				}
			}
		}
	}
	return all[:min(len(all), maxSuites)]
}

// suitesAt returns the named suites of the repository at a URL.
func suitesAt(of packages.Suite, at string, names []string) (all []packages.Suite) {
	u, err := url.Parse(at)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil
	}
	of.Base = (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.TrimSuffix(u.Path, "/")}).String()
	for _, name := range names {
		if !strings.HasSuffix(name, "/") { // a directory without components
			of.Name = name
			all = append(all, of)
		}
	}
	return all
}

// signers reads the keys that Signed-By names; without it, those are that apt trusts for every source.
func (r *Reader) signers(signedBy string, trusted [][]byte) (rings [][]byte, fingerprints []string) {
	if strings.TrimSpace(signedBy) == "" {
		return trusted, nil
	}
	if strings.Contains(signedBy, "-----BEGIN PGP") {
		return [][]byte{[]byte(strings.TrimSpace(signedBy) + "\n")}, nil
	}
	for _, by := range strings.Fields(signedBy) {
		if aptFinger.Regexp().MatchString(by) {
			fingerprints = append(fingerprints, strings.ToUpper(strings.TrimSuffix(by, "!")))
			continue
		}
		if text, err := readFile(filepath.Join(r.root, by)); err == nil {
			rings = append(rings, []byte(text))
		}
	}
	if len(fingerprints) > 0 { // they are of keys that apt trusts
		rings = append(rings, trusted...)
	}
	return rings, fingerprints
}

func (r *Reader) trustedKeys(p aptPlaces) (rings [][]byte) {
	for _, pattern := range []string{p.trusted, p.trustedParts + "/*.gpg", p.trustedParts + "/*.asc"} {
		files, _ := filepath.Glob(filepath.Join(r.root, pattern)) // a pattern without meaning has none
		for _, file := range files {
			if text, err := readFile(file); err == nil {
				rings = append(rings, []byte(text))
			}
		}
	}
	return rings
}
