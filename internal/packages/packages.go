// Package packages tells which file of which package a URL is, and what digest the index of the package's registry
// states for it. It does no I/O.
//
// A registry never changes a published file, and its index states each file's digest. So a file that was fetched once
// can be served again as long as the index states that digest. Everything here follows from the configuration of the
// machine's tools: a file that is not below one of their registries is none.
package packages

import (
	"net/url"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// kind is one kind of registries.
type kind struct {
	tool   string // of policy.Machine.Registry
	accept string
	most   int64
	// parse reads the path of a file: the package's name and version, and the part of the path below the registry's own,
	// empty where a file is anywhere on a host of the registry's.
	parse  func(path string) (name, version, below string, ok bool)
	index  func(f File, own string, all []string) []string
	digest func(f File, index string, body []byte) (Digest, bool)
}

var kinds = []kind{
	{"npm", "application/json", 1 << 20, parseNPM, indexNPM, digestNPM},
	{"pip", "application/vnd.pypi.simple.v1+json, text/html;q=0.5", 16 << 20, parsePip, indexPip, digestPip},
	{"cargo", "*/*", 8 << 20, parseCargo, indexCargo, digestCargo},
	{"gem", "*/*", 8 << 20, parseGem, indexGem, digestGem},
}

const maxIndexes = 4

// Find returns the file of a package at a URL. It asks registry, as policy.Machine.Registry, only where the URL has the
// form of such a file. It finds files over https, without a query, with paths in which nothing is escaped.
func Find(of *url.URL, registry func(tool string) ([]policy.Endpoint, error)) (File, bool) {
	if of.Scheme != "https" || of.RawQuery != "" || of.User != nil || !plain(of.EscapedPath()) {
		return File{}, false
	}
	for _, k := range kinds {
		name, version, below, ok := k.parse(of.Path)
		if !ok {
			continue
		}
		endpoints, err := registry(k.tool)
		if err != nil {
			continue
		}
		f := File{URL: "https://" + strings.TrimSuffix(of.Host, ":443") + of.Path, Accept: k.accept, Most: k.most,
			Tool: k.tool, name: name, version: version, digest: k.digest}
		own, all, ok := bases(of, below, endpoints)
		if !ok {
			continue
		}
		f.Index = k.index(f, own, all)
		f.Index = slices.DeleteFunc(f.Index, func(index string) bool { // a version may be ".."
			u, err := url.Parse(index)
			return err != nil || !plain(strings.TrimSuffix(u.EscapedPath(), "/"))
		})
		f.Index = f.Index[:min(len(f.Index), maxIndexes)]
		return f, len(f.Index) > 0
	}
	return File{}, false
}

// bases returns the base of the registry that a file is below, and those of all registries over https.
func bases(of *url.URL, below string, endpoints []policy.Endpoint) (own string, all []string, ok bool) {
	for _, e := range endpoints {
		for _, base := range e.Bases {
			u, err := url.Parse(base)
			if err != nil || u.Scheme != "https" {
				continue
			}
			base = strings.TrimSuffix(base, "/")
			all = append(all, base)
			if authority(u) == authority(of) && (below == "" || of.Path == strings.TrimSuffix(u.Path, "/")+below) {
				own, ok = base, true
			}
		}
	}
	return own, all, ok
}
