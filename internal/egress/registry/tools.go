package registry

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove/internal/packages"
	"github.com/cove-sandbox/cove/internal/pattern"
)

var (
	tomlSection = pattern.New(`^\[\s*([^\]]+?)\s*\]`)
	tomlString  = pattern.New(`^([\w.-]+)\s*=\s*["']([^"']*)["']`)
	cargoIndex  = pattern.New(`^(.+)-[0-9a-f]{16}$`)
)

// cargo reads cargo's configuration, which cargo does not print, and its used indexes, which name the hosts of crates.
func (r *Reader) cargo(context.Context) ([]origin, error) {
	home := cmp.Or(r.getenv("CARGO_HOME"), filepath.Join(r.getenv("HOME"), ".cargo"))
	var all []origin
	for _, name := range []string{"config", "config.toml"} {
		text, err := readFile(filepath.Join(home, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, u := range cargoURLs(text) {
			all = append(all, origin{u, "cargo's " + name})
		}
	}
	used, err := filepath.Glob(filepath.Join(home, "registry/index/*/config.json"))
	if err != nil {
		return nil, err
	}
	for _, file := range used {
		text, err := readFile(file)
		if err != nil {
			return nil, err
		}
		var index struct{ DL string }
		m := cargoIndex.FindStringSubmatch(filepath.Base(filepath.Dir(file)))
		if m == nil || json.Unmarshal([]byte(text), &index) != nil {
			continue
		}
		all = append(all, origin{m[1], "cargo's index"}, origin{index.DL, "cargo's index"})
	}
	return all, nil
}

// cargoURLs returns the registries of a config.toml: "registry" of a source, "index" of a registry.
func cargoURLs(text string) []string {
	var all []string
	section := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if m := tomlSection.FindStringSubmatch(line); m != nil {
			section = m[1]
			continue
		}
		m := tomlString.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		key := section + "." + m[1]
		if strings.HasPrefix(key, "source.") && strings.HasSuffix(key, ".registry") ||
			strings.HasPrefix(key, "registries.") && strings.HasSuffix(key, ".index") {
			all = append(all, m[2])
		}
	}
	return all
}

const npmSetting = "npm config "

// npm asks npm, which knows its files, environment and default, for "registry" and "@scope:registry".
func (r *Reader) npm(ctx context.Context) ([]origin, error) {
	out, err := r.run(ctx, "npm", "config", "list", "--json")
	if err != nil {
		return nil, err
	}
	var config map[string]any
	if err := json.Unmarshal([]byte(out), &config); err != nil {
		return nil, err
	}
	var all []origin
	for _, key := range slices.Sorted(maps.Keys(config)) {
		value, ok := config[key].(string)
		if ok && (key == "registry" || strings.HasPrefix(key, "@") && strings.HasSuffix(key, ":registry")) {
			all = append(all, origin{value, npmSetting + key})
		}
	}
	return all, nil
}

// golang asks go for its module proxies and its checksum database.
func (r *Reader) golang(ctx context.Context) ([]origin, error) {
	out, err := r.run(ctx, "go", "env", "GOPROXY", "GOSUMDB")
	if err != nil {
		return nil, err
	}
	proxies, database, _ := strings.Cut(strings.TrimSpace(out), "\n")
	var all []origin
	for _, proxy := range strings.FieldsFunc(proxies, func(c rune) bool { return c == ',' || c == '|' }) {
		if proxy = strings.TrimSpace(proxy); proxy != "direct" && proxy != "off" {
			all = append(all, origin{proxy, "GOPROXY"})
		}
	}
	if s := goSums(database); s.Name != "" {
		all = append(all, origin{s.URL, "GOSUMDB"})
	}
	return all, nil
}

// goSums reads GOSUMDB: NAME[+KEY] [URL]; without a URL the name is the host.
func goSums(text string) packages.Sums {
	f := strings.Fields(text)
	if len(f) == 0 || f[0] == "off" {
		return packages.Sums{}
	}
	name, _, hasKey := strings.Cut(f[0], "+")
	s := packages.Sums{Name: name, URL: "https://" + name}
	if hasKey {
		s.Key = f[0]
	}
	if len(f) > 1 {
		s.URL = strings.TrimSuffix(f[1], "/")
	}
	return s
}

// Sums returns the checksum database of this machine's go with its key; the zero one if there is none, or no key. go
// does not print the keys that it knows: they are read from its source.
func (r *Reader) Sums(ctx context.Context) packages.Sums {
	out, err := r.run(ctx, "go", "env", "-json", "GOSUMDB", "GONOSUMDB", "GOROOT")
	var env struct{ GOSUMDB, GONOSUMDB, GOROOT string }
	if err != nil || json.Unmarshal([]byte(out), &env) != nil {
		return packages.Sums{}
	}
	s := goSums(env.GOSUMDB)
	if s.Name != "" && s.Key == "" {
		source, _ := readFile(filepath.Join(env.GOROOT, "src/cmd/go/internal/modfetch/key.go")) // without it there is no key
		key := regexp.MustCompile(`"(` + regexp.QuoteMeta(s.Name) + `\+[0-9a-f]{8}\+[A-Za-z0-9+/=]+)"`)
		if m := key.FindStringSubmatch(source); m != nil {
			s.Key = m[1]
		}
	}
	if s.Key == "" {
		return packages.Sums{}
	}
	s.Private = env.GONOSUMDB
	return s
}

var (
	pipSetting = pattern.New(`(?m)^[\w:.-]*\.(index-url|extra-index-url|find-links)='(.*)'$`)
	pipPlace   = pattern.New(`^pip \S+ from (.+) \(python`)
	pipBuiltin = pattern.New(`(?s)\bPyPI = PackageIndex\(\s*"(https?://[^"]+)",\s*file_storage_domain="([^"]+)"`)
)

// pip asks pip for its configuration. Its default index, and the host of the files, are read from pip's source.
func (r *Reader) pip(ctx context.Context) ([]origin, error) {
	program, before, version, err := r.pipProgram(ctx)
	if err != nil {
		return nil, err
	}
	out, err := r.run(ctx, program, append(before, "config", "list")...)
	if err != nil {
		return nil, err
	}
	var all []origin
	index := ""
	for _, m := range pipSetting.Regexp().FindAllStringSubmatch(out, -1) {
		for _, u := range strings.Fields(strings.ReplaceAll(m[2], `\n`, " ")) {
			if strings.Contains(u, "://") {
				all = append(all, origin{u, "pip config " + m[1]})
			}
		}
		if m[1] == "index-url" {
			index = m[2]
		}
	}
	if place := pipPlace.FindStringSubmatch(version); place != nil {
		source, err := readFile(filepath.Join(place[1], "_internal/models/index.py"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		if m := pipBuiltin.FindStringSubmatch(source); m != nil && (index == "" || strings.HasPrefix(index, m[1])) {
			all = append(all, origin{strings.TrimSuffix(m[1], "/") + "/simple", "pip"}, origin{m[2], "pip"})
		}
	}
	return all, nil
}

// pipProgram returns the program of pip, the arguments before its own, and the output of --version.
func (r *Reader) pipProgram(ctx context.Context) (program string, before []string, version string, err error) {
	for _, way := range [][]string{{"pip"}, {"pip3"}, {"python3", "-m", "pip"}} {
		if version, err = r.run(ctx, way[0], append(slices.Clone(way[1:]), "--version")...); err == nil {
			return way[0], way[1:], version, nil
		}
	}
	return "", nil, "", errors.Join(exec.ErrNotFound, err)
}

// gem asks gem for the sources of gems.
func (r *Reader) gem(ctx context.Context) ([]origin, error) {
	out, err := r.run(ctx, "gem", "environment", "remotesources")
	if err != nil {
		return nil, err
	}
	var all []origin
	for _, source := range strings.Fields(out) {
		all = append(all, origin{source, "gem sources"})
	}
	return all, nil
}
