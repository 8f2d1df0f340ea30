package packages

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// parseCargo reads /name/1.0.0/download, and /name/name-1.0.0.crate.
func parseCargo(path string) (name, version, below string, ok bool) {
	parts := strings.Split(path, "/")
	if len(parts) < 3 {
		return "", "", "", false
	}
	last := parts[len(parts)-1]
	if last == "download" && len(parts) > 3 {
		parts = parts[len(parts)-3:]
		return parts[0], parts[1], "/" + strings.Join(parts, "/"), parts[0] != "" && parts[1] != ""
	}
	name = parts[len(parts)-2]
	version, prefixed := strings.CutPrefix(last, name+"-")
	version, suffixed := strings.CutSuffix(version, ".crate")
	return name, version, "/" + name + "/" + last, prefixed && suffixed && name != "" && version != ""
}

// indexCargo is the file of the crate in every index other than the place of its downloads.
func indexCargo(f File, own string, all []string) (files []string) {
	name := strings.ToLower(f.name)
	var at string
	switch len(name) {
	case 1, 2:
		at = []string{"1/", "2/"}[len(name)-1]
	case 3:
		at = "3/" + name[:1] + "/"
	default:
		at = name[:2] + "/" + name[2:4] + "/"
	}
	for _, base := range all {
		if file := base + "/" + at + name; base != own && !slices.Contains(files, file) {
			files = append(files, file)
		}
	}
	return files
}

// digestCargo reads the lines of a crate's file in an index.
func digestCargo(f File, _ string, body []byte) (Digest, bool) {
	for line := range bytes.Lines(body) {
		var of struct{ Name, Vers, Cksum string }
		if json.Unmarshal(line, &of) == nil && of.Name == f.name && of.Vers == f.version {
			return digestOf256(of.Cksum)
		}
	}
	return Digest{}, false
}
