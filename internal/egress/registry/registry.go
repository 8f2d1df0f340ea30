// Package registry owns the question where this machine's tools get packages from. It reads the configuration of npm,
// pip, go, apt, cargo and gem, so that presets follow a company's mirrors, and Cove contains no registry's address.
//
// A tool that prints its configuration is asked; for the others, files are read. The configuration is that of the
// account that runs Cove.
package registry

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

const (
	toolTimeout = 30 * time.Second // npm takes a second on a busy machine
	maxOutput   = 4 << 20          // of a tool, or of a file
)

// Reader reads the configuration of tools, each once, and keeps the result.
type Reader struct {
	root   string // prefix of /etc
	getenv func(string) string
	// run returns the output of a program; fs.ErrNotExist or exec.ErrNotFound if it is not installed.
	run func(ctx context.Context, name string, args ...string) (string, error)

	mu    sync.Mutex
	found map[string]*answer // of tools
}

// answer holds the endpoints of a tool; all is nil until the tool has answered.
type answer struct {
	mu  sync.Mutex
	all []policy.Endpoint
}

// New returns a Reader for this machine.
func New() *Reader {
	return &Reader{root: "/", getenv: os.Getenv, run: run, found: map[string]*answer{}}
}

// Endpoints returns where a tool (npm, pip, go, apt, cargo or gem) gets packages from. Errors: NotFound when the
// tool is not installed or names nothing, InvalidArgument for another tool.
func (r *Reader) Endpoints(ctx context.Context, tool string) ([]policy.Endpoint, error) {
	read := map[string]func(context.Context) ([]origin, error){"npm": r.npm, "pip": r.pip, "go": r.golang, "apt": r.apt,
		"cargo": r.cargo, "gem": r.gem}[tool]
	if read == nil {
		return nil, cove.Errorf(cove.InvalidArgument, "the configuration of %s is not known", tool)
	}
	r.mu.Lock()
	have := r.found[tool]
	if have == nil {
		have = &answer{}
		r.found[tool] = have
	}
	r.mu.Unlock()
	have.mu.Lock()
	defer have.mu.Unlock()
	if have.all != nil {
		return slices.Clone(have.all), nil
	}
	origins, err := read(ctx)
	if errors.Is(err, exec.ErrNotFound) {
		return nil, cove.Errorf(cove.NotFound, "%s is not installed on this machine, so nothing says where its packages are",
			tool).WithHint("name the hosts by rules instead of the preset")
	}
	if err != nil {
		return nil, cove.Errorf(cove.Unavailable, "cannot read the configuration of %s: %w", tool, err).
			WithHint("name the hosts by rules instead of the preset")
	}
	all := endpoints(origins)
	if len(all) == 0 {
		return nil, cove.Errorf(cove.NotFound, "the configuration of %s names no place for packages", tool).
			WithHint("configure %s, or name the hosts by rules instead of the preset", tool)
	}
	have.all = all
	return slices.Clone(all), nil
}

// NPM returns where npm gets packages from, by the names of npm's settings: "registry" and "@scope:registry". Users and
// passwords in URLs are removed. Errors: NotFound when npm is not installed.
func (r *Reader) NPM(ctx context.Context) (map[string]string, error) {
	origins, err := r.npm(ctx)
	if errors.Is(err, exec.ErrNotFound) {
		return nil, cove.Errorf(cove.NotFound, "npm is not installed on this machine")
	}
	if err != nil {
		return nil, cove.Errorf(cove.Unavailable, "cannot read the configuration of npm: %w", err)
	}
	all := map[string]string{}
	for _, o := range origins {
		u, err := url.Parse(o.url)
		if err != nil || strings.ContainsAny(o.url, "\r\n") {
			continue
		}
		u.User = nil
		all[strings.TrimPrefix(o.from, npmSetting)] = u.String()
	}
	return all, nil
}

type origin struct{ url, from string }

// endpoints returns the distinct origins with http and https, without users and passwords.
func endpoints(origins []origin) []policy.Endpoint {
	var all []policy.Endpoint
	for _, o := range origins {
		raw := strings.TrimPrefix(strings.TrimSpace(o.url), "sparse+")
		if !strings.Contains(raw, "://") {
			raw = "https://" + raw
		}
		u, err := url.Parse(raw)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" {
			continue
		}
		port := map[string]uint16{"http": 80, "https": 443}[u.Scheme]
		e := policy.Endpoint{From: o.from}
		if e.Host, e.Port, err = policy.ParseAuthority(strings.TrimSuffix(u.Host, ":"), port); err != nil {
			continue
		}
		i := slices.IndexFunc(all, func(have policy.Endpoint) bool { return have.Host == e.Host && have.Port == e.Port })
		if i < 0 {
			i, all = len(all), append(all, e)
		}
		base := (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.TrimSuffix(u.Path, "/")}).String()
		if !slices.Contains(all[i].Bases, base) {
			all[i].Bases = append(all[i].Bases, base)
		}
	}
	return all
}

// run runs a tool in a directory without a project's configuration.
func run(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, toolTimeout)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "GOTOOLCHAIN=local", "PIP_DISABLE_PIP_VERSION_CHECK=1", "NO_UPDATE_NOTIFIER=1")
	cmd.Stdout = &limited{w: &out, left: maxOutput}
	cmd.WaitDelay = time.Second // for children that keep the pipe
	err := cmd.Run()
	return out.String(), err
}

type limited struct {
	w    io.Writer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	if l.left -= len(p); l.left < 0 {
		return 0, errors.New("the output is too large")
	}
	return l.w.Write(p)
}

func readFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxOutput))
	return string(data), err
}
