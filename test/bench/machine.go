//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/test/bench/result"
)

// describe describes the machine and the programs that are measured, without naming the machine.
func describe(ctx context.Context, b *build) result.Machine {
	m := result.Machine{
		{"processors", fmt.Sprintf("%d, %s", runtime.NumCPU(), field("/proc/cpuinfo", "model name"))},
		{"architecture", runtime.GOARCH},
		{"virtual machine", yes(strings.Contains(" "+field("/proc/cpuinfo", "flags")+" ", " hypervisor "))},
		{"memory", field("/proc/meminfo", "MemTotal")},
		{"kernel", firstLine(os.ReadFile("/proc/sys/kernel/osrelease"))},
		{"system", strings.Trim(value("/etc/os-release", "PRETTY_NAME="), `"`)},
		{"control groups", cgroups()},
		{"load before", firstLine(os.ReadFile("/proc/loadavg"))},
	}
	if program, err := binaryIn(b.bin, "cove"); err == nil {
		m = append(m, [2]string{"cove", firstLine(exec.CommandContext(ctx, program, "version").Output())})
	}
	for _, l := range languages {
		if args := l.plain(); args != nil && l.name != "sh" {
			m = append(m, [2]string{l.name, firstLine(exec.CommandContext(ctx, args[0], "--version").Output())})
		}
	}
	for _, p := range all {
		if path, err := exec.LookPath(p.program); err == nil {
			m = append(m, [2]string{p.name, firstLine(exec.CommandContext(ctx, path, "--version").Output())})
		}
	}
	return m
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func cgroups() string {
	var s unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &s); err == nil && s.Type == unix.CGROUP2_SUPER_MAGIC {
		return "version 2"
	}
	return "version 1"
}

// field is the first value of a name in a file such as /proc/meminfo.
func field(file, name string) string {
	data, _ := os.ReadFile(file)
	for line := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// value is what follows a prefix in a line of a file.
func value(file, prefix string) string {
	data, _ := os.ReadFile(file)
	for line := range strings.Lines(string(data)) {
		if after, ok := strings.CutPrefix(line, prefix); ok {
			return strings.TrimSpace(after)
		}
	}
	return ""
}

func firstLine(data []byte, _ error) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(data)), "\n")
	return line
}

// calm waits until the pools of a build's servers have made up for what was taken from them, so that they take nothing
// from what is measured next.
func (b *build) calm(ctx context.Context) {
	for _, s := range b.servers {
		for end := time.Now().Add(2 * time.Second); !s.full(ctx) && time.Now().Before(end); {
			if pause(ctx, 2*time.Millisecond) != nil {
				return
			}
		}
	}
}
