package packages

import (
	"encoding/json"
	"html"
	"net/url"
	"path"
	"strings"

	"github.com/cove-sandbox/cove/internal/pattern"
)

const metadata = ".metadata" // of a wheel, beside it

var (
	pipSeparators = pattern.New(`[-_.]+`)
	pipLink       = pattern.New(`(?i)<a\s[^>]*?\bhref\s*=\s*["']([^"'#]+)#sha256=([0-9a-f]{64})["']`)
)

// parsePip reads the names of wheels, of what their metadata is in, and of source distributions.
func parsePip(p string) (name, version, below string, ok bool) {
	file := strings.TrimSuffix(path.Base(p), metadata)
	if stem, wheel := strings.CutSuffix(file, ".whl"); wheel {
		name, _, ok = strings.Cut(stem, "-")
		return name, "", "", ok && name != ""
	}
	for _, suffix := range []string{".tar.gz", ".zip"} {
		stem, source := strings.CutSuffix(path.Base(p), suffix)
		if i := strings.LastIndexByte(stem, '-'); source && i > 0 {
			return stem[:i], "", "", true
		}
	}
	return "", "", "", false
}

// indexPip is the project's page of every index. The host of files alone has no path, and is none.
func indexPip(f File, _ string, all []string) (pages []string) {
	project := strings.ToLower(pipSeparators.Regexp().ReplaceAllString(f.name, "-"))
	for _, base := range all {
		if u, err := url.Parse(base); err == nil && u.Path != "" {
			pages = append(pages, base+"/"+project+"/")
		}
	}
	return pages
}

// digestPip reads a page of the simple repository API, in JSON or HTML.
func digestPip(f File, index string, body []byte) (Digest, bool) {
	page, err := url.Parse(index)
	if err != nil {
		return Digest{}, false
	}
	isFile := func(link, suffix string) bool {
		u, err := page.Parse(link)
		return err == nil && u.String()+suffix == f.URL
	}
	var list struct {
		Files []struct {
			URL      string
			Hashes   struct{ SHA256 string }
			Metadata json.RawMessage `json:"core-metadata"`
		}
	}
	if json.Unmarshal(body, &list) == nil {
		for _, file := range list.Files {
			if isFile(file.URL, "") {
				return digestOf256(file.Hashes.SHA256)
			}
			if isFile(file.URL, metadata) {
				var of struct{ SHA256 string }
				_ = json.Unmarshal(file.Metadata, &of) // "true" states no digest
				return digestOf256(of.SHA256)
			}
		}
		return Digest{}, false
	}
	for _, m := range pipLink.Regexp().FindAllSubmatch(body, -1) {
		if isFile(html.UnescapeString(string(m[1])), "") {
			return digestOf256(string(m[2]))
		}
	}
	return Digest{}, false
}
