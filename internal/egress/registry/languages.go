package registry

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const npmSetting = "npm config "

// npm asks npm for its registries, since npm knows its files, environment and default: "registry" and
// "@scope:registry".
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
	// NAME[+KEY] [URL]; without a URL the name is the host.
	if f := strings.Fields(database); len(f) > 0 && f[0] != "off" {
		name, _, _ := strings.Cut(f[0], "+")
		all = append(all, origin{f[len(f)-1], "GOSUMDB"})
		if len(f) == 1 {
			all[len(all)-1].url = name
		}
	}
	return all, nil
}

var (
	pipSetting = regexp.MustCompile(`(?m)^[\w:.-]*\.(index-url|extra-index-url|find-links)='(.*)'$`)
	pipPlace   = regexp.MustCompile(`^pip \S+ from (.+) \(python`)
	pipBuiltin = regexp.MustCompile(`(?s)\bPyPI = PackageIndex\(\s*"(https?://[^"]+)",\s*file_storage_domain="([^"]+)"`)
)

// pip asks pip for its configuration. Its default index, and the host of that index's files, are read from pip's
// source.
func (r *Reader) pip(ctx context.Context) ([]origin, error) {
	program, before, err := r.pipProgram(ctx)
	if err != nil {
		return nil, err
	}
	out, err := r.run(ctx, program, append(before, "config", "list")...)
	if err != nil {
		return nil, err
	}
	var all []origin
	index := ""
	for _, m := range pipSetting.FindAllStringSubmatch(out, -1) {
		for _, u := range strings.Fields(strings.ReplaceAll(m[2], `\n`, " ")) {
			if strings.Contains(u, "://") {
				all = append(all, origin{u, "pip config " + m[1]})
			}
		}
		if m[1] == "index-url" {
			index = m[2]
		}
	}
	version, err := r.run(ctx, program, append(before, "--version")...)
	if err != nil {
		return nil, err
	}
	if place := pipPlace.FindStringSubmatch(version); place != nil {
		source, err := readFile(filepath.Join(place[1], "_internal/models/index.py"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		if m := pipBuiltin.FindStringSubmatch(source); m != nil && (index == "" || strings.HasPrefix(index, m[1])) {
			all = append(all, origin{m[1], "pip"}, origin{m[2], "pip"})
		}
	}
	return all, nil
}

// pipProgram returns the way to run pip here.
func (r *Reader) pipProgram(ctx context.Context) (program string, before []string, err error) {
	for _, way := range [][]string{{"pip"}, {"pip3"}, {"python3", "-m", "pip"}} {
		if _, err = r.run(ctx, way[0], append(slices.Clone(way[1:]), "--version")...); err == nil {
			return way[0], way[1:], nil
		}
	}
	return "", nil, errors.Join(exec.ErrNotFound, err)
}
