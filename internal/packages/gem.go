package packages

import (
	"bytes"
	"path"
	"strings"
)

// parseGem reads /gems/name-1.0.0.gem and /gems/name-1.0.0-platform.gem. It returns the file without its suffix as
// name: where the version begins is not known, since a name may have hyphens and digits.
func parseGem(p string) (name, version, below string, ok bool) {
	file := path.Base(p)
	stem, is := strings.CutSuffix(file, ".gem")
	return stem, "", "/gems/" + file, is && strings.HasSuffix(p, "/gems/"+file) && len(gemNames(stem)) > 0
}

// gemNames returns the names that a gem may have, by its file: those before a hyphen and a digit.
func gemNames(stem string) (names []string) {
	for i := 1; i < len(stem)-1; i++ {
		if stem[i] == '-' && stem[i+1] >= '0' && stem[i+1] <= '9' {
			names = append(names, stem[:i])
		}
	}
	return names
}

// indexGem is the gem's file of the compact index, for each name that the gem may have.
func indexGem(f File, own string, _ []string) (files []string) {
	for _, name := range gemNames(f.name) {
		files = append(files, own+"/info/"+name)
	}
	return files
}

// digestGem reads lines "1.0.0-platform dependencies|checksum:SHA256,ruby:>= 2.0". Several lines of one version with
// different digests state none.
func digestGem(f File, index string, body []byte) (d Digest, ok bool) {
	version, of := strings.CutPrefix(f.name, path.Base(index)+"-")
	if !of {
		return Digest{}, false
	}
	for line := range bytes.Lines(body) {
		have, rest, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		if have != version {
			continue
		}
		_, requirements, _ := strings.Cut(rest, "|")
		var one Digest
		stated := false
		for requirement := range strings.SplitSeq(requirements, ",") {
			if sum, is := strings.CutPrefix(strings.TrimSpace(requirement), "checksum:"); is {
				one, stated = digestOf256(sum)
			}
		}
		if !stated || ok && one != d {
			return Digest{}, false
		}
		d, ok = one, true
	}
	return d, ok
}
