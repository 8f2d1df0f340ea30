//go:build linux

package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestSettings(t *testing.T) {
	for _, tt := range []struct {
		version int
		t       Throughput
		want    []setting
	}{
		{1, Throughput{}, nil},
		{2, Throughput{}, nil},
		{1, Throughput{Bytes: 5}, []setting{{"blkio.throttle.read_bps_device", "7:3 5"},
			{"blkio.throttle.write_bps_device", "7:3 5"}}},
		{1, Throughput{Operations: 6}, []setting{{"blkio.throttle.read_iops_device", "7:3 6"},
			{"blkio.throttle.write_iops_device", "7:3 6"}}},
		{2, Throughput{Bytes: 5, Operations: 6}, []setting{{"io.max", "7:3 rbps=5 wbps=5 riops=6 wiops=6"}}},
		{2, Throughput{Operations: 6}, []setting{{"io.max", "7:3 riops=6 wiops=6"}}},
	} {
		if got := tt.t.settings(tt.version, "7:3"); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%+v on version %d: %q, want %q", tt.t, tt.version, got, tt.want)
		}
	}
}

// TestThrottle: a group reads no faster of a device than its limit lets it, and another group as fast as it can.
func TestThrottle(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("loop devices need root")
	}
	h := find(t)
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, make([]byte, 4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", image).CombinedOutput()
	if err != nil {
		t.Fatalf("losetup: %v: %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
			t.Errorf("losetup: %v: %s", err, out)
		}
	})
	const operations, reads = 20, 60
	// read returns how long a process of a group takes for reads that are not cached.
	read := func(name string, limit Throughput) time.Duration {
		g, err := h.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := g.Remove(5 * time.Second); err != nil {
				t.Error(err)
			}
		}()
		// It waits to begin, as a guest does, and becomes the reader.
		fifo := filepath.Join(t.TempDir(), "begin")
		if err := unix.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd, _ := start(t, h, g, fmt.Sprintf("read line <%s; exec dd iflag=direct of=/dev/null bs=4k count=%d if=%s", fifo,
			reads, device))
		if limit != (Throughput{}) {
			if err := g.Throttle(device, limit); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		if err := os.WriteFile(fifo, []byte("\n"), 0); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		return time.Since(began)
	}
	free, limited := read("free", Throughput{}), read("limited", Throughput{Operations: operations})
	// The kernel lets some through at once.
	if least := time.Second * (reads - operations) / operations; limited < least || free >= limited {
		t.Errorf("%d reads took %v with a limit of %d a second, and %v without", reads, limited, operations, free)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(h.dirs[BlockIO], "limited"), &st); err != unix.ENOENT {
		t.Errorf("the group is left: %v", err)
	}
}

// TestThrottleNotItself: Throttle leaves a process alone of which a thread alone is in the group.
func TestThrottleNotItself(t *testing.T) {
	h := find(t)
	if h.Version() == 2 || !h.Has(BlockIO) || os.Geteuid() != 0 {
		t.Skip("threads are in groups of version 1 alone, and only root limits devices there")
	}
	before, err := groupsOf("self")
	if err != nil {
		t.Fatal(err)
	}
	g := create(t, h, Limits{})
	leave := enterAWhile(t, g)
	defer leave()
	if err := g.joinBlockIO(); err != nil {
		t.Fatal(err)
	}
	if after, err := groupsOf("self"); err != nil || after["blkio"] != before["blkio"] || after["blkio"] == "" {
		t.Errorf("this process has moved from the group %q to %q: %v", before["blkio"], after["blkio"], err)
	}
}
