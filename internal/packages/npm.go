package packages

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
)

// parseNPM reads [/@scope]/name/-/name-1.0.0.tgz.
func parseNPM(path string) (name, version, below string, ok bool) {
	before, file, found := strings.Cut(path, "/-/")
	if !found || strings.Contains(file, "/") {
		return "", "", "", false
	}
	parts := strings.Split(before, "/")
	base := parts[len(parts)-1]
	name = base
	if n := len(parts); n > 1 && strings.HasPrefix(parts[n-2], "@") {
		name = parts[n-2] + "/" + base
	}
	version, prefixed := strings.CutPrefix(file, base+"-")
	version, suffixed := strings.CutSuffix(version, ".tgz")
	return name, version, "/" + name + "/-/" + file, prefixed && suffixed && base != "" && version != ""
}

// indexNPM is the document of one version.
func indexNPM(f File, own string, _ []string) []string {
	return []string{own + "/" + f.name + "/" + f.version}
}

// digestNPM reads the integrity of the document of a version (Subresource Integrity). A SHA-1 alone is none.
func digestNPM(f File, _ string, body []byte) (Digest, bool) {
	var of struct {
		Name, Version string
		Dist          struct{ Integrity, Tarball string }
	}
	if json.Unmarshal(body, &of) != nil || of.Name != f.name || of.Version != f.version || of.Dist.Tarball != f.URL {
		return Digest{}, false
	}
	var d Digest
	for _, s := range strings.Fields(of.Dist.Integrity) {
		text, is512 := strings.CutPrefix(s, "sha512-")
		text, _, _ = strings.Cut(text, "?")
		raw, err := base64.StdEncoding.DecodeString(text)
		if !is512 || err != nil || len(raw) != 64 || d.SHA512 != "" { // several would be alternatives
			return Digest{}, false
		}
		d.SHA512 = hex.EncodeToString(raw)
	}
	return d, d.SHA512 != ""
}
