//go:build linux

package hostdisk

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cove-sandbox/cove"
)

// left reserves nothing, and returns the room that there is beside all reservations.
func left(t *testing.T, d Disk) (free int64) {
	t.Helper()
	r, err := d.Reserve(func(room Room) (int64, error) { free = room.Left(); return 0, nil })
	if err != nil {
		t.Fatal(err)
	}
	r.End()
	return free
}

// TestReservations: several that each fit alone are judged by their sum, and what was written or ended is free again.
func TestReservations(t *testing.T) {
	home := t.TempDir()
	d := At(home, home)
	reserve := func(bytes int64) (*Reservation, error) {
		return d.Reserve(func(room Room) (int64, error) {
			room.Free = min(room.Free, 0) + room.Floor() + 100 // as if 100 bytes were left
			for _, text := range reserved(t, home) {
				room.Free -= text
			}
			return bytes, room.Fits("it", bytes)
		})
	}
	one, err := reserve(60)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reserve(60); cove.ErrorCode(err) != cove.StorageFull {
		t.Errorf("beyond the sum: %v", err)
	}
	two, err := reserve(40)
	if err != nil {
		t.Fatal(err)
	}
	one.Wrote(30)
	if got := one.Left(); got != 30 {
		t.Errorf("%d bytes are reserved still", got)
	}
	three, err := reserve(30)
	if err != nil {
		t.Errorf("what was written is reserved still: %v", err)
	}
	for _, r := range []*Reservation{one, two, three, nil} {
		r.End()
		r.End()
	}
	if got := reserved(t, home); len(got) != 0 {
		t.Errorf("left is %v", got)
	}
}

// reserved reads all reservations.
func reserved(t *testing.T, home string) (all []int64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(home, "reserved", "[A-Z0-9]*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		n := int64(0)
		for _, c := range strings.Fields(string(text))[1] {
			n = 10*n + int64(c-'0')
		}
		all = append(all, n)
	}
	return all
}

// TestReserveAtOnce: of many that ask at once for three tenths of what is left, three get it.
func TestReserveAtOnce(t *testing.T) {
	home := t.TempDir()
	room, err := Of(home)
	if err != nil || room.Left() < 1<<20 {
		t.Skipf("the disk of the test is short: %+v, %v", room, err)
	}
	part := room.Left()*3/10 + 1
	var all sync.WaitGroup
	var mu sync.Mutex
	var got []*Reservation
	for range 20 {
		all.Go(func() {
			r, err := At(home, home).Reserve(Fitting("it", part))
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			got = append(got, r)
		})
	}
	all.Wait()
	if len(got) != 3 {
		t.Errorf("%d have three tenths", len(got))
	}
	for _, r := range got {
		r.End()
	}
}

// TestReservationOfTheDead: what a process has reserved that was killed is free.
func TestReservationOfTheDead(t *testing.T) {
	home := os.Getenv("COVE_TEST_RESERVE")
	if home != "" {
		if _, err := At(home, home).Reserve(func(Room) (int64, error) { return 1 << 50, nil }); err != nil {
			t.Fatal(err)
		}
		os.Stdout.WriteString("reserved\n")
		select {}
	}
	home = t.TempDir()
	d := At(home, home)
	child := exec.Command(os.Args[0], "-test.run=^TestReservationOfTheDead$")
	child.Env = append(os.Environ(), "COVE_TEST_RESERVE="+home)
	out, err := child.StdoutPipe()
	if err == nil {
		err = child.Start()
	}
	if err == nil {
		_, err = out.Read(make([]byte, 16))
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := left(t, d); got > -1<<49 {
		t.Errorf("beside the other process %d bytes are left", got)
	}
	child.Process.Kill()
	child.Wait()
	if got := left(t, d); got < -1<<49 {
		t.Errorf("%d bytes are left after it was killed", got)
	}
}
