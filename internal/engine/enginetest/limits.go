package enginetest

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
)

// Limits are verified by exceeding them (invariant H4).
var limitTests = []test{
	{name: "memory", kernel: true, run: memoryLimit},
	{name: "memory of files in memory", kernel: true, run: tmpfsMemory},
	{name: "CPU", kernel: true, run: cpuLimit},
	{name: "processes", kernel: true, run: pidsLimit},
	{name: "disk", kernel: true, run: diskLimit},
	{name: "disk, all places together", kernel: true, run: diskTotal},
	{name: "temporary places whose programs do not run", kernel: true, run: noExec},
	{name: "inodes", kernel: true, run: inodeLimit},
	{name: "open files", kernel: true, run: openFiles},
	{name: "core dumps are off", kernel: true, run: coreDumps},
}

func memoryLimit(t *testing.T, x *env) {
	if !x.caps.MemoryLimit {
		t.Skip("the engine holds no memory limit: " + x.caps.Missing["memory_limit"])
	}
	sb := x.bound(t)
	half := Limits(x.caps).Memory / 2
	// tail keeps what has no line end.
	x.want(t, sb, shell(fmt.Sprintf("head -c %d /dev/zero | tail -c 1 | head -c 0; echo fits", half)), "fits\n")
	r := x.output(t, sb, shell(fmt.Sprintf("head -c %d /dev/zero | tail | head -c 1", 8*half)))
	if r.stdout != "" {
		t.Errorf("twice the limit and more fits: %+v", r.exit)
	}
	s, err := sb.Stats(x.ctx)
	if err != nil || s.OOMKills < 1 {
		t.Errorf("the kernel killed nobody: %+v, %v", s, err)
	}
	if limit := 2 * half; s.MemoryPeak > limit || s.MemoryPeak < limit/2 {
		t.Errorf("peak memory %d, limit %d", s.MemoryPeak, limit)
	}
	x.want(t, sb, command("echo", "the guest lives"), "the guest lives\n")
}

func tmpfsMemory(t *testing.T, x *env) {
	if !x.caps.MemoryLimit || !x.caps.DiskLimit {
		t.Skip("the engine holds no memory or no disk limit")
	}
	sb := x.bound(t)
	r := x.output(t, sb, shell("head -c 4m /dev/zero > /work/a; head -c 4m /dev/zero > /tmp/b; echo $?"))
	if r.stdout != "0\n" {
		t.Fatalf("the control: %+v", r)
	}
	s, err := sb.Stats(x.ctx)
	if err != nil || s.MemoryPeak < 8<<20 {
		t.Errorf("files in memory are not counted: %+v, %v", s, err)
	}
}

func cpuLimit(t *testing.T, x *env) {
	if !x.caps.CPULimit {
		t.Skip("the engine holds no CPU limit: " + x.caps.Missing["cpu_limit"])
	}
	const share = 0.3
	sb := x.bound(t, func(tmpl *engine.Template) { tmpl.Limits.CPUs = share })
	before, err := sb.Stats(x.ctx)
	if err != nil {
		t.Fatal(err)
	}
	p := x.start(t, sb, shell("while :; do :; done & while :; do :; done"))
	const wall = 3 * time.Second
	time.Sleep(wall)
	after, err := sb.Stats(x.ctx)
	if err != nil {
		t.Fatal(err)
	}
	sb.Guest().SignalAll(x.ctx, int(syscall.SIGKILL))
	x.finish(t, p)
	used := after.CPUTime - before.CPUTime
	if allowed := time.Duration(share * float64(wall)); used > allowed*3/2+200*time.Millisecond || used < allowed/4 {
		t.Errorf("two loops used %v in %v, allowed is %v", used, wall, allowed)
	}
}

func pidsLimit(t *testing.T, x *env) {
	if !x.caps.PIDsLimit {
		t.Skip("the engine holds no limit of processes: " + x.caps.Missing["pids_limit"])
	}
	sb := x.bound(t)
	limit := Limits(x.caps).PIDs
	r := x.output(t, sb, shell("i=0; while [ $i -lt 300 ]; do sleep 600 & i=$((i+1)); done; echo all of them"))
	if r.stdout != "" || r.exit.Code == 0 {
		t.Errorf("300 processes under a limit of %d: %+v", limit, r)
	}
	s, err := sb.Stats(x.ctx)
	if err != nil || s.PIDsDenied < 1 {
		t.Errorf("the kernel refused nobody: %+v, %v", s, err)
	}
	if s.PIDsPeak > limit || s.PIDsPeak < limit/2 {
		t.Errorf("peak %d, limit %d", s.PIDsPeak, limit)
	}
	if err := sb.Guest().SignalAll(x.ctx, int(syscall.SIGKILL)); err != nil {
		t.Errorf("SignalAll: %v", err)
	}
	eventually(t, "a process starts again", func() bool {
		p, err := sb.Guest().Start(x.ctx, command("true"))
		if err != nil {
			return false
		}
		r := x.finish(t, p)
		return r.exit.Code == 0
	})
}

func diskLimit(t *testing.T, x *env) {
	sb := x.diskLimited(t)
	limit := Limits(x.caps).Disk
	x.want(t, sb, shell(fmt.Sprintf("head -c %d /dev/zero > /work/fits; echo $?", limit/4)), "0\n")
	r := x.output(t, sb, shell("rm /work/fits; cat /dev/zero > /work/big"))
	// A file of the disk's size may also meet the limit of a file's size.
	if r.exit.Code == 0 || !strings.Contains(r.stderr, "No space left on device") && !strings.Contains(r.stderr,
		"File size limit exceeded") {
		t.Errorf("an endless file: %+v", r)
	}
	if !r.exit.Stats.Full() {
		t.Errorf("the exit does not say that the disk is full: %+v", r.exit.Stats)
	}
	if info, err := sb.Guest().Stat(x.ctx, "/work/big"); err != nil || info.Size > limit || info.Size < limit/4 {
		t.Errorf("%d bytes were written, limit %d; %v", info.Size, limit, err)
	}
	if s, err := sb.Guest().Stats(x.ctx); err != nil || s.DiskUsed > limit || s.DiskSize > limit || s.DiskUsed < limit/4 {
		t.Errorf("the guest counts %+v, %v", s, err)
	}
	x.want(t, sb, shell("rm /work/big; echo again > /work/f; cat /work/f"), "again\n")
}

func (x *env) diskLimited(t *testing.T) engine.Sandbox {
	t.Helper()
	if !x.caps.DiskLimit {
		t.Skip("the engine holds no disk limit: " + x.caps.Missing["disk_limit"])
	}
	return x.bound(t)
}

// writableDirs finds every directory the user can write to, wherever it is.
const writableDirs = `find / -xdev -type d -writable -print 2>/dev/null; awk '{ print $5 }' /proc/self/mountinfo`

func diskTotal(t *testing.T, x *env) {
	sb := x.diskLimited(t)
	r := x.output(t, sb, shell(writableDirs+` | sort -u | while read -r d; do
		[ -d "$d" ] && [ -w "$d" ] && cat /dev/zero > "$d/fill" 2>/dev/null
		[ -f "$d/fill" ] && wc -c < "$d/fill"
	done`))
	var total int64
	places := 0
	for line := range strings.Lines(r.stdout) {
		var n int64
		if _, err := fmt.Sscan(line, &n); err == nil {
			total += n
			places++
		}
	}
	if limit := Limits(x.caps).Disk; total > limit || total < limit/2 || places < 2 {
		t.Errorf("%d places took %d bytes, limit %d; %q", places, total, limit, r.stderr)
	}
}

func inodeLimit(t *testing.T, x *env) {
	sb := x.diskLimited(t)
	limit := Limits(x.caps).Inodes
	r := x.output(t, sb, shell("i=0; while [ $i -lt 5000 ]; do : > f$i || exit 9; i=$((i+1)); done; echo all of them"))
	if r.stdout != "" || r.exit.Code == 0 {
		t.Errorf("5000 files under a limit of %d: %+v", limit, r.exit)
	}
	if !r.exit.Stats.Full() {
		t.Errorf("the exit does not say that the inodes are used up: %+v", r.exit.Stats)
	}
	infos, err := sb.Guest().List(x.ctx, cove.WorkDir)
	const own = 64 // what the sandbox itself may have there
	if n := int64(len(infos)); err != nil || n > limit+own || n < limit/4 {
		t.Errorf("%d files were made, limit %d; %v", n, limit, err)
	}
}

func openFiles(t *testing.T, x *env) {
	sb := x.bound(t)
	limit := Limits(x.caps).OpenFiles
	x.want(t, sb, shell("ulimit -Sn; ulimit -Hn"), fmt.Sprintf("%d\n%d\n", limit, limit))
	r := x.output(t, sb, command("bash", "-c",
		`i=3; while [ $i -lt 2000 ]; do eval "exec $i</dev/null" || exit 9; i=$((i+1)); done; echo all of them`))
	if r.stdout != "" || r.exit.Code == 0 {
		t.Errorf("2000 open files under a limit of %d: %+v", limit, r)
	}
}

func coreDumps(t *testing.T, x *env) {
	x.want(t, x.bound(t), shell("ulimit -Sc; ulimit -Hc"), "0\n0\n")
}

// noExec: programs in temporary places do not run, and those in the user's own places do.
func noExec(t *testing.T, x *env) {
	if !x.caps.NoExec {
		t.Skip("the engine has no temporary places whose programs do not run: " + x.caps.Missing["no_exec"])
	}
	const script = `for d in /tmp /var/tmp /run /dev/shm "$HOME" .; do
		printf '#!/bin/sh\necho runs\n' > "$d/p" && chmod 755 "$d/p"; "$d/p" 2>/dev/null || echo "$?"
	done`
	for want, no := range map[string]bool{"126\n126\n126\n126\nruns\nruns\n": true,
		"runs\nruns\nruns\nruns\nruns\nruns\n": false} {
		sb := x.bound(t, func(tmpl *engine.Template) { tmpl.NoExec = no })
		if r := x.output(t, sb, shell(script)); r.stdout != want {
			t.Errorf("noexec %v: %q %q", no, r.stdout, r.stderr)
		}
	}
}
