//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/cove-sandbox/cove/test/bench/result"
)

// project depends on some 250 packages.
const project = `{"name":"bench","version":"1.0.0",
	"dependencies":{"eslint":"8.57.0","express":"4.19.2","webpack":"5.91.0"}}`

// ciArgs have npm install what the lock file says, and nothing else.
const ciArgs = "ci --no-audit --no-fund --no-update-notifier --loglevel=error"

const (
	memoryPackages  = "plain, on a disk in memory"
	sharedPackages  = "cove, from the cache of packages"
	fetchedPackages = "cove, from the gateway's cache alone"
)

// npmProject makes a project with a lock file, and npm's own cache of all its packages beside it.
func npmProject(ctx context.Context, b *build) error {
	if err := os.MkdirAll(b.project(), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(b.project(), "package.json"), []byte(project), 0o644); err != nil {
		return err
	}
	return b.inProject("npm install --package-lock-only --omit-lockfile-registry-resolved=false --no-audit --no-fund " +
		"&& npm " + ciArgs + " --cache ../npm")(ctx)
}

func (b *build) project() string { return filepath.Join(b.dir, "packages") }

func (b *build) inProject(script string) func(context.Context) error {
	return func(ctx context.Context) error {
		cmd := exec.CommandContext(ctx, "bash", "-c", script)
		cmd.Dir = b.project()
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %.200s", err, out)
		}
		return nil
	}
}

// packageScenarios measure the installation of a project of npm, unless why says that there is none. A process of the
// host has npm's own cache, which is complete. A sandbox has what an earlier one of its owner has fetched: as npm's
// own files or, where npm has its cache elsewhere, from the gateway alone. Both may use every processor. As the disk of
// a sandbox is in memory, there is a process of the host that installs into memory, too.
func packageScenarios(ctx context.Context, b *build, rounds int, why error) ([]scenario, error) {
	s := scenario{part: "packages", name: "npm ci of 250 packages", load: one, rounds: max(rounds/6, 5),
		budget: 12 * budget}
	if why != nil {
		s.contenders = []contender{{name: sharedPackages, why: "npm cannot install here: " + why.Error()}}
		return []scenario{s}, nil
	}
	cove, err := binaryIn(b.bin, "cove")
	if err != nil {
		return nil, err
	}
	server, err := b.server(ctx)
	if err != nil {
		return nil, err
	}
	inside := func(flags string) func(context.Context) error {
		return server.command(cove, "run", "bash", "-c", "cd /tmp && cp /in/package*.json . && npm "+ciArgs+flags,
			"--preset", "npm", "--mount", b.project()+":/in:ro", "--cpus", strconv.Itoa(runtime.NumCPU()), "--memory", "2G",
			"--disk", "1G", "--pids", "300", "--timeout", "5m")
	}
	const memory = "/dev/shm/cove-bench-packages"
	s.contenders = []contender{
		{name: memoryPackages,
			prepare: b.inProject("rm -rf " + memory + " && mkdir " + memory + " && cp package*.json " + memory),
			run:     b.inProject("d=$PWD && cd " + memory + " && npm " + ciArgs + " --cache $d/../npm"),
			settle:  func() error { return os.RemoveAll(memory) }},
		{name: result.Plain, prepare: b.inProject("rm -rf node_modules"),
			run: b.inProject("npm " + ciArgs + " --cache ../npm")},
		{name: sharedPackages, run: inside("")},
		{name: fetchedPackages, run: inside(" --cache /tmp/npm")},
		{name: "plain, without a cache", prepare: b.inProject("rm -rf node_modules ../empty"),
			run: b.inProject("npm " + ciArgs + " --cache ../empty")},
	}
	return []scenario{s}, nil
}
