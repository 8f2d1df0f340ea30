package sqlite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/store"
)

// smallDisk mounts a file system of that many bytes.
func smallDisk(t *testing.T, options string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounts a small file system, which needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("cannot mount a tmpfs here: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// leave fills the file system of dir, but for some pages.
func leave(t *testing.T, dir string, pages uint64) (empty func()) {
	t.Helper()
	var of unix.Statfs_t
	if err := unix.Statfs(dir, &of); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n := int64(of.Bavail-pages) * of.Bsize; n > 0 {
		if err := unix.Fallocate(int(f.Fd()), 0, 0, n); err != nil {
			t.Fatal(err)
		}
	}
	return func() { os.Remove(path) }
}

// TestNearlyFull ends an execution with as many pages free as each of its writes could meet the end of the disk at.
// What is answered as recorded is there, whole, after reopening; what is not is not there in part. The reserve leaves
// room for the end without its output.
func TestNearlyFull(t *testing.T) {
	const output = 500 << 10
	disk := smallDisk(t, "size=48m")
	template := filepath.Join(t.TempDir(), "cove.db")
	s := openAt(t, template)
	if err := s.Append(t.Context(), store.Record{Action: "start"}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	database, err := os.ReadFile(template)
	if err != nil {
		t.Fatal(err)
	}
	step := uint64(1)
	if testing.Short() {
		step = 8
	}
	for name, reserved := range map[string]bool{"with the reserve": true, "without": false} {
		var whole, cut, refused int
		for free := uint64(0); free < 180; free += step {
			path := filepath.Join(disk, "cove.db")
			for _, old := range []string{"", "-wal", "-shm", "-reserve"} {
				os.Remove(path + old)
			}
			writeFile(t, path, database)
			s := openAt(t, path)
			e := store.Execution{ID: cove.NewExecutionID(), Status: cove.StatusRunning, ExitCode: -1}
			if err := s.Begin(t.Context(), e); err != nil {
				t.Fatal(err)
			}
			if !reserved {
				os.Truncate(path+"-reserve", 0)
			}
			empty := leave(t, disk, free)
			end := time.Unix(9, 0)
			e.Status, e.ExitCode, e.FinishedAt, e.Output = cove.StatusCompleted, 0, &end, strings.Repeat("o", output)
			told := s.Finish(t.Context(), e, store.Record{Action: "execute", Object: string(e.ID)})
			check := func(told error) {
				t.Helper()
				s.Close()
				s = openAt(t, path)
				got, err := s.Get(t.Context(), e.ID)
				if err != nil {
					t.Fatal(err)
				}
				log, err := s.Audit(t.Context(), store.AuditQuery{Object: string(e.ID), Limit: 10})
				if err != nil {
					t.Fatal(err)
				}
				v, err := s.Verify(t.Context())
				if err != nil || v.Broken != 0 {
					t.Fatalf("%s, %d pages: the chain breaks at %d, %v", name, free, v.Broken, err)
				}
				ended, lines := got.Status == cove.StatusCompleted, len(log.Records)
				kept := got.Output == e.Output && got.OutputGone == "" || got.Output == "" && got.OutputGone == store.GoneStorageFull
				switch {
				case told == nil && (!ended || !kept || lines != 1):
					t.Errorf("%s, %d pages: recorded, they say: %s, %d bytes, %q, %d lines", name, free, got.Status, len(got.Output),
						got.OutputGone, lines)
				case told != nil && (ended || lines != 0 || got.Output != ""):
					t.Errorf("%s, %d pages: %v, but %s, %d lines", name, free, told, got.Status, lines)
				case told != nil && (reserved || cove.ErrorCode(told) != cove.StorageFull):
					t.Errorf("%s, %d pages: %v", name, free, told)
				case told != nil:
					refused++
				case got.Output == "":
					cut++
				default:
					whole++
				}
			}
			empty()
			check(told)
			if told != nil {
				if err := s.Finish(t.Context(), e, store.Record{Action: "execute", Object: string(e.ID)}); err != nil {
					t.Errorf("%s, %d pages: with room again: %v", name, free, err)
				}
				check(nil)
			}
			s.Close()
		}
		t.Logf("%s: %d with output, %d without, %d not recorded", name, whole, cut, refused)
		if whole == 0 || cut == 0 || reserved != (refused == 0) {
			t.Errorf("%s: the disk was not met at every step", name)
		}
	}
}

// TestNothingBeginsWithoutTheReserve: what could not be ended is refused, and runs again when there is room.
func TestNothingBeginsWithoutTheReserve(t *testing.T) {
	disk := smallDisk(t, "size=16m")
	s := openAt(t, filepath.Join(disk, "cove.db"))
	begin := func() error { return s.Begin(t.Context(), store.Execution{ID: cove.NewExecutionID()}) }
	if err := begin(); err != nil {
		t.Fatal(err)
	}
	os.Truncate(string(s.reserve), reserveSize-reservePart)
	empty := leave(t, disk, 64)
	if err := begin(); cove.ErrorCode(err) != cove.StorageFull {
		t.Errorf("without a whole reserve: %v", err)
	}
	empty()
	if err := begin(); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if info, err := os.Stat(string(s.reserve)); err != nil || info.Size() != reserveSize {
		t.Errorf("the reserve has %v, %v", info, err)
	}
}
