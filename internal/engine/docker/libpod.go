//go:build linux

package docker

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/atomicfile"
)

// Podman serves an API like Docker's, by which containers are found, started, attached to and removed, and one of its
// own, by which they are made. What it has made is looked at from outside before a program of the user's begins.

// podman makes the requests to a daemon that the client of Docker's API does not have.
type podman struct {
	c       *client.Client
	engine  bool   // the daemon is to be a service of Podman's
	setting string // what its address is of, for errors
	filters string // directory of the files of filters, which Podman reads
	limits  bool   // it limits containers itself
	keepsID bool   // it gives a user of a container the ids of the service's user, from 4.3 on
}

// podmanAPI is the version of Podman's own API: what its service speaks from 4.0 on.
const podmanAPI = "/v4.0.0/libpod"

// is makes sure that the server is what was asked for. A service of Podman's says in each answer which version of its
// own API it has.
func (p *podman) is(ctx context.Context) error {
	if !strings.HasPrefix(p.c.DaemonHost(), "unix://") {
		if p.engine {
			return cove.Errorf(cove.Unsupported, "Podman at %s is on another machine, where what it makes cannot be checked",
				p.c.DaemonHost()).WithHint("run cove there, or use --engine native")
		}
		return nil // differences tells one from the other
	}
	header, _, err := p.call(ctx, http.MethodGet, "/_ping", nil)
	if err != nil {
		return err
	}
	version := header.Get("Libpod-Api-Version")
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil && version != "" {
		return fmt.Errorf("it has the version %q", version)
	}
	p.keepsID = major > 4 || major == 4 && minor >= 3
	switch podman := version != ""; {
	case podman && !p.engine:
		return cove.Errorf(cove.Unsupported, "Podman answers at %s, of which the docker engine cannot check what it makes",
			p.c.DaemonHost()).WithHint("use --engine podman, or check %s", p.setting)
	case !podman && p.engine:
		return cove.Errorf(cove.Unsupported, "no Podman answers at %s, but another engine", p.c.DaemonHost()).
			WithHint("use --engine docker, or check CONTAINER_HOST")
	case podman && major < 4:
		return cove.Errorf(cove.Unsupported, "Podman %s cannot hold a sandbox", version).
			WithHint("use Podman 4 or newer, or --engine native")
	}
	return nil
}

// info describes the service, and reports whether it runs without root, which it says in no field that Docker has. Of
// one without root, what its control groups have is told as Docker tells it.
func (p *podman) info(ctx context.Context) (info system.Info, rootless bool, err error) {
	var more struct {
		Host struct {
			CgroupVersion     string
			CgroupControllers []string
			Security          struct{ Rootless bool }
		}
	}
	for path, to := range map[string]any{"/v1.41/info": &info, podmanAPI + "/info": &more} {
		_, said, err := p.call(ctx, http.MethodGet, path, nil)
		if err = cmp.Or(err, json.Unmarshal(said, to)); err != nil {
			return info, false, err
		}
	}
	info.CgroupVersion = strings.TrimPrefix(more.Host.CgroupVersion, "v")
	if !more.Host.Security.Rootless && serverOf(p.c.DaemonHost()).Uid == 0 {
		return info, false, nil
	}
	has := func(controller string) bool { return slices.Contains(more.Host.CgroupControllers, controller) }
	info.MemoryLimit, info.SwapLimit = has("memory"), has("memory")
	info.CPUCfsPeriod, info.CPUCfsQuota, info.PidsLimit = has("cpu"), has("cpu"), has("pids")
	return info, true, nil
}

// call makes a request that the client of Docker's API does not have.
func (p *podman) call(ctx context.Context, method, path string, body []byte) (http.Header, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://engine"+path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	t := &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return p.c.Dialer()(ctx) }}
	resp, err := t.RoundTrip(r)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil || resp.StatusCode < 300 || resp.StatusCode == http.StatusNotModified {
		return resp.Header, said, err
	}
	var failure struct{ Message string }
	if json.Unmarshal(said, &failure) != nil || failure.Message == "" {
		failure.Message = resp.Status
	}
	switch {
	case strings.Contains(failure.Message, "already in use"):
		err = cerrdefs.ErrConflict
	case resp.StatusCode == http.StatusNotFound:
		err = cerrdefs.ErrNotFound
	case resp.StatusCode == http.StatusServiceUnavailable:
		err = cerrdefs.ErrUnavailable
	default:
		err = cerrdefs.ErrInternal
	}
	return resp.Header, nil, fmt.Errorf("%s: %w", failure.Message, err)
}

// libpod makes a call of Podman's own API.
func (p *podman) libpod(ctx context.Context, path string, body, answer any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	_, said, err := p.call(ctx, http.MethodPost, podmanAPI+path, text)
	if err != nil || answer == nil {
		return err
	}
	return json.Unmarshal(said, answer)
}

// create makes a container by Podman's own API.
func (p *podman) create(ctx context.Context, name string, config *container.Config,
	host *container.HostConfig) (id string, warnings []string, err error) {
	filter := ""
	for _, o := range host.SecurityOpt {
		if text, ok := strings.CutPrefix(o, "seccomp="); ok {
			filter = text
		}
	}
	file, err := p.keep(filter)
	if err != nil {
		return "", nil, cove.Errorf(cove.StorageFull, "cannot write to the run directory: %w", err).
			WithHint("free some space, or choose another with --run-dir or COVE_RUN_DIR")
	}
	// The service can give no more than it has, unless it may raise limits.
	most, server := map[string]uint64{}, int(serverOf(p.c.DaemonHost()).Pid)
	for name, number := range map[string]int{"nofile": unix.RLIMIT_NOFILE, "nproc": unix.RLIMIT_NPROC} {
		var own, its unix.Rlimit
		err := cmp.Or(unix.Getrlimit(number, &own), unix.Prlimit(server, number, nil, &its))
		if err != nil {
			return "", nil, os.NewSyscallError("prlimit", err)
		}
		most[name] = min(own.Max, its.Max)
	}
	var made struct {
		ID       string `json:"Id"`
		Warnings []string
	}
	spec := forPodman(name, config, host, file, most)
	if !p.limits {
		spec.Limits = podmanLimits{}
	}
	for range idAttempts {
		err = p.libpod(ctx, "/containers/create", spec, &made)
		if err == nil || !strings.Contains(err.Error(), "keep-id requires additional") {
			return made.ID, made.Warnings, err
		}
	}
	return "", nil, cove.Errorf(cove.Unsupported, "Podman finds no subordinate ids of yours: %w", err).
		WithHint(`run "usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER" as root, ` +
			`and then "podman system migrate"`)
}

// idAttempts bounds how often a container is asked for whose ids Podman does not find. Two requests that look for them
// at the same time may find none.
const idAttempts = 20

// keep returns a file that has a filter of system calls, for Podman to read; none for no filter of Cove's.
func (p *podman) keep(filter string) (file string, err error) {
	if filter == "" {
		return "", nil
	}
	sum := sha256.Sum256([]byte(filter))
	file = filepath.Join(p.filters, hex.EncodeToString(sum[:8])+".json")
	if have, err := os.ReadFile(file); err == nil && string(have) == filter {
		return file, nil
	}
	return file, cmp.Or(os.MkdirAll(p.filters, 0o755), atomicfile.Replace(file, []byte(filter), 0o644))
}

// place describes a path of a container that has not begun; none when nothing is there.
func (p *podman) place(ctx context.Context, id, name string) (*container.PathStat, error) {
	header, _, err := p.call(ctx, http.MethodHead, podmanAPI+"/containers/"+id+"/archive?path="+name, nil)
	text := header.Get("X-Docker-Container-Path-Stat")
	switch {
	case text != "": // also of a link that leads nowhere, with an error
	case errors.Is(err, cerrdefs.ErrNotFound):
		return nil, nil
	default:
		return nil, cmp.Or(err, errors.New("it says nothing of "+name))
	}
	said, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, err
	}
	there := new(container.PathStat)
	return there, json.Unmarshal(said, there)
}
