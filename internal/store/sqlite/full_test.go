package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/linux/disk"
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

// leave fills the file system of dir until only so many pages are free. empty removes what fills it.
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
				kept := got.Output == e.Output && got.OutputGone == "" ||
					got.Output == "" && got.OutputGone == store.GoneStorageFull
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

// TestRunsNearlyFull begins and ends runs with as many pages free as each of their writes could meet the end of the
// disk at. What is answered as recorded is there after reopening, whole or marked as cut; what is not is not there in
// part. A run begins only while the reserve is whole, which leaves room for its end.
func TestRunsNearlyFull(t *testing.T) {
	disk := smallDisk(t, "size=48m")
	path := filepath.Join(disk, "cove.db")
	step := uint64(1)
	if testing.Short() {
		step = 7 // odd and even ones
	}
	var changes []store.FileChange
	for n := range 1000 {
		changes = append(changes, store.FileChange{Path: fmt.Sprintf("a/file/%d", n), Change: "added", Added: 1})
	}
	reopened := func(s *Store, id cove.RunID) (*Store, store.Run, error) {
		s.Close()
		s = openAt(t, path)
		r, err := s.Run(t.Context(), id)
		return s, r, err
	}
	var whole, cut, begun, refused int
	for free := uint64(0); free < 100; free += step {
		for _, old := range []string{"", "-wal", "-shm", "-reserve"} {
			os.Remove(path + old)
		}
		s := openAt(t, path)
		run := store.Run{ID: cove.NewRunID(), Status: store.RunRunning, Prompt: strings.Repeat("p", 20<<10)}
		if err := s.AddRun(t.Context(), run); err != nil {
			t.Fatal(err)
		}
		empty := leave(t, disk, free)
		told := s.ChangeRun(t.Context(), run.ID, func(r *store.Run) error {
			r.Status, r.Result, r.Changes = store.RunSucceeded, strings.Repeat("r", 100<<10), changes
			return nil
		})
		s, got, err := reopened(s, run.ID)
		all := len(got.Result) == 100<<10 && len(got.Changes) == len(changes)
		switch {
		case told != nil || err != nil || got.Status != store.RunSucceeded || got.Prompt != run.Prompt:
			t.Errorf("%d pages: the end: %v; it is %s, %v", free, told, got.Status, err)
		case got.Cut == all || len(got.Result) == 0 || len(got.Changes) == 0:
			t.Errorf("%d pages: cut: %t, with %d bytes and %d changes", free, got.Cut, len(got.Result), len(got.Changes))
		case got.Cut:
			cut++
		default:
			whole++
		}
		empty()

		s.Close()
		s = openAt(t, path)
		os.Truncate(string(s.reserve), reserveSize)
		if free%2 == 1 { // what another end has taken of the reserve
			os.Truncate(string(s.reserve), reserveSize-reservePart)
		}
		if _, err := s.write.Exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
			t.Fatal(err)
		}
		empty = leave(t, disk, free)
		run.ID = cove.NewRunID()
		told = s.AddRun(t.Context(), run)
		s, got, err = reopened(s, run.ID)
		switch {
		case told == nil && (err != nil || got.Prompt != run.Prompt):
			t.Errorf("%d pages: a run has begun, they say: %s, %v", free, got.Status, err)
		case told != nil && (cove.ErrorCode(told) != cove.StorageFull || cove.ErrorCode(err) != cove.NotFound):
			t.Errorf("%d pages: a beginning: %v, but %s, %v", free, told, got.Status, err)
		case told == nil && free%2 == 1:
			t.Errorf("%d pages: a run begins without a whole reserve", free)
		case told != nil:
			refused++
		default:
			begun++
		}
		empty()
		s.Close()
	}
	t.Logf("%d ends whole, %d cut; %d begun, %d refused", whole, cut, begun, refused)
	if whole == 0 || cut == 0 || begun == 0 || refused == 0 {
		t.Error("the disk was not met at every step")
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

// TestEndsOnAFullDisk: what ends is recorded on a disk without any room, and nothing is begun there.
func TestEndsOnAFullDisk(t *testing.T) {
	disk := smallDisk(t, "size=24m")
	s := openAt(t, filepath.Join(disk, "cove.db"))
	ctx := t.Context()
	add := func() (cove.SandboxID, error) {
		b := store.Sandbox{ID: cove.NewSandboxID(), State: cove.StatePreparing}
		b.Name = string(b.ID)
		return b.ID, s.AddSandbox(ctx, b, store.Room{})
	}
	run := store.Run{ID: cove.NewRunID(), Status: store.RunRunning}
	if err := s.AddRun(ctx, run); err != nil {
		t.Fatal(err)
	}
	var all []cove.SandboxID
	for range 30 { // as many as the write-ahead log has no room for
		id, err := add()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, id)
	}
	if _, err := s.write.Exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		t.Fatal(err)
	}
	leave(t, disk, 0)
	if err := s.TouchSandbox(ctx, all[0], time.Unix(9, 0)); cove.ErrorCode(err) != cove.StorageFull {
		t.Fatalf("the disk is not full: %v", err)
	}
	if err := s.Append(ctx, store.Record{Action: "exec"}); err != nil {
		t.Errorf("a record: %v", err)
	}
	if err := s.Check(ctx); cove.ErrorCode(err) != cove.StorageFull {
		t.Errorf("Check says %v", err)
	}
	for _, id := range all {
		if err := s.MoveSandbox(ctx, id, cove.StatePreparing, cove.StateDestroying, ""); err != nil {
			t.Fatal(err)
		}
		if err := s.RemoveSandbox(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	err := s.ChangeRun(ctx, run.ID, func(r *store.Run) error {
		r.Status, r.Result = store.RunInterrupted, strings.Repeat("r", 10<<20) // more than the reserve has
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if _, err := add(); cove.ErrorCode(err) != cove.StorageFull {
		t.Errorf("a sandbox is added: %v", err)
	}
}

// TestAppendLeavesRoomForEnds: records of a full disk leave half of the reserve.
func TestAppendLeavesRoomForEnds(t *testing.T) {
	disk := smallDisk(t, "size=24m")
	s := openAt(t, filepath.Join(disk, "cove.db"))
	e := store.Execution{ID: cove.NewExecutionID()}
	if err := s.Begin(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	leave(t, disk, 0)
	var refused error
	for n := 0; refused == nil && n < 10_000; n++ {
		refused = s.Append(t.Context(), store.Record{Action: "exec", Detail: strings.Repeat("x", 4000)})
	}
	info, err := os.Stat(string(s.reserve))
	if !errors.Is(refused, errFull) || err != nil || info.Size() != reserveSize/2 {
		t.Fatalf("%v; the reserve: %v, %v", refused, info.Size(), err)
	}
	e.Status, e.Output = cove.StatusCompleted, strings.Repeat("o", 100<<10)
	if err := s.Finish(t.Context(), e, store.Record{Action: "execute", Object: string(e.ID)}); err != nil {
		t.Errorf("an end: %v", err)
	}
}

// TestOtherFaultsTakeNothing: an error that is not for want of space costs neither an output nor the reserve.
func TestOtherFaultsTakeNothing(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "cove.db"))
	e := store.Execution{ID: cove.NewExecutionID()}
	if err := s.Begin(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	e.Status, e.Output = cove.StatusCompleted, "o"
	end := func() error { return s.Finish(t.Context(), e, store.Record{Action: "execute", Object: string(e.ID)}) }
	writes := s.write
	s.write = s.read // which is read-only, as a file system may become
	ended, noted := end(), s.Append(t.Context(), store.Record{Action: "exec"})
	s.write = writes
	for _, err := range []error{ended, noted} {
		if cove.ErrorCode(err) != cove.StorageFull || errors.Is(err, errFull) {
			t.Errorf("of a read-only database: %v", err)
		}
	}
	if info, err := os.Stat(string(s.reserve)); err != nil || info.Size() != reserveSize {
		t.Errorf("the reserve: %v, %v", info, err)
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get(t.Context(), e.ID); err != nil || got.Output != "o" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestDiskFails: a disk that reads and writes no more is told apart from a full one, costs neither an output nor the
// reserve, and what was recorded before is there once it works again.
func TestDiskFails(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts a file system, which needs root")
	}
	at := t.TempDir()
	i := disk.Image{File: filepath.Join(at, "image"), Dir: filepath.Join(at, "disk")}
	if err := disk.Try(t.Context(), at); err != nil {
		t.Skip("needs a disk of its own: ", err)
	}
	mount := func() {
		t.Helper()
		if err := i.Mount(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := i.Make(t.Context(), disk.Size{Bytes: 64 << 20, Inodes: 100}); err != nil {
		t.Fatal(err)
	}
	mount()
	t.Cleanup(func() { i.Unmount() })
	s := openAt(t, filepath.Join(i.Dir, "cove.db"))
	e := store.Execution{ID: cove.NewExecutionID()}
	if err := s.Begin(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	breakDisk(t, i.Dir)
	e.Status, e.Output = cove.StatusCompleted, "o"
	end := func(s *Store) error {
		return s.Finish(t.Context(), e, store.Record{Action: "execute", Object: string(e.ID)})
	}
	for what, err := range map[string]error{"an end": end(s), "a trial": s.Check(t.Context()),
		"a record": s.Append(t.Context(), store.Record{Action: "exec"})} {
		if cove.ErrorCode(err) != cove.Unavailable || errors.Is(err, errFull) ||
			!strings.Contains(err.Error(), "fails") || !strings.Contains(cove.ErrorHint(err), "dmesg") {
			t.Errorf("%s: %v", what, err)
		}
	}
	s.Close()
	if err := i.Unmount(); err != nil {
		t.Fatal(err)
	}
	if err := i.Released(t.Context()); err != nil {
		t.Fatal(err)
	}
	mount()
	s = openAt(t, filepath.Join(i.Dir, "cove.db"))
	defer s.Close()
	if info, err := os.Stat(string(s.reserve)); err != nil || info.Size() != reserveSize {
		t.Errorf("the reserve: %v, %v", info, err)
	}
	if err := end(s); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get(t.Context(), e.ID); err != nil || got.Output != "o" {
		t.Errorf("%+v, %v", got, err)
	}
}

// breakDisk writes out what an ext4 has, which would go as when the machine loses power, and has it answer every read
// and write from then on with EIO.
func breakDisk(t *testing.T, dir string) {
	t.Helper()
	const shutdown, flushLog = 0x8004587d, 1 // EXT4_IOC_SHUTDOWN, EXT4_GOING_FLAGS_LOGFLUSH
	f, err := os.Open(dir)
	if err == nil {
		defer f.Close()
		err = errors.Join(unix.Syncfs(int(f.Fd())), unix.IoctlSetPointerInt(int(f.Fd()), shutdown, flushLog))
	}
	if err != nil {
		t.Fatal("not tested: ", err)
	}
}

// TestOutOfFiles: a process with as many open files as it may have is told that, and not of its disk.
func TestOutOfFiles(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "cove.db"))
	if err := os.WriteFile(string(s.reserve), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	var all []*os.File
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		all = append(all, f)
	}
	err := s.Begin(t.Context(), store.Execution{ID: cove.NewExecutionID()})
	for _, f := range all {
		f.Close()
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if cove.ErrorCode(err) != cove.Overloaded || !strings.Contains(cove.ErrorHint(err), "limit of open files") {
		t.Errorf("%v", err)
	}
}

// TestCheckOfOthers: neither a caller that leaves nor a record that still fits changes what is known of the disk.
func TestCheckOfOthers(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "cove.db"))
	left, leave := context.WithCancel(t.Context())
	leave()
	if err := s.Check(left); err != nil {
		t.Errorf("of a caller that left: %v", err)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("after a caller that left: %v", err)
	}
	s.health.end(unwritable(s.path, unix.ENOSPC))
	if err := s.Append(t.Context(), store.Record{Action: "exec"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(t.Context()); !errors.Is(err, errFull) {
		t.Errorf("after a record: %v", err)
	}
	s.health = health{trying: true} // another caller waits for the disk
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("beside another trial: %v", err)
	}
	s.health.end(cove.Errorf(cove.Canceled, "it took too long"))
	if s.health.found != nil || s.health.trying || !s.health.tried.IsZero() {
		t.Errorf("a trial that waited too long found %v", s.health.found)
	}
}

// TestCheck: the store says that it cannot record, for each reason, and that it can again.
func TestCheck(t *testing.T) {
	disk := smallDisk(t, "size=24m")
	path := filepath.Join(disk, "cove.db")
	s := openAt(t, path)
	check := func(what string, want cove.Code) {
		t.Helper()
		s.health.tried = time.Time{}
		if err := s.Check(t.Context()); cove.ErrorCode(err) != want {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	check("at first", "")
	empty := leave(t, disk, 20)
	check("a full disk", cove.StorageFull)
	empty()
	check("room again", "")

	begin := func() error { return s.Begin(t.Context(), store.Execution{ID: cove.NewExecutionID()}) }
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	check("a file that is gone", cove.Unavailable)
	if err := begin(); cove.ErrorCode(err) != cove.Unavailable || !strings.Contains(err.Error(), path) {
		t.Errorf("without its file: %v", err)
	}
	writeFile(t, path, nil)
	check("another file", cove.Unavailable)
	if err := begin(); cove.ErrorCode(err) != cove.Unavailable {
		t.Errorf("with another file: %v", err)
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	check("the file is back", "")
	if err := begin(); err != nil {
		t.Errorf("the file is back: %v", err)
	}
	s.note(cove.Errorf(cove.Corrupt, "a damaged page"))
	if err := s.Check(t.Context()); cove.ErrorCode(err) != cove.Corrupt {
		t.Errorf("damage that a write has met: %v", err)
	}
}

// TestLogRemoved: a log or an index that was removed is noticed as the database is: what is written would be lost.
func TestLogRemoved(t *testing.T) {
	for _, end := range []string{"-wal", "-shm"} {
		path := filepath.Join(t.TempDir(), "cove.db")
		s := openAt(t, path)
		if err := s.Append(t.Context(), store.Record{Action: "start"}); err != nil {
			t.Fatal(err)
		}
		if err := s.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+end, path+".away"); err != nil {
			t.Fatal(err)
		}
		for what, err := range map[string]error{"Check": s.Check(t.Context()),
			"a write": s.Append(t.Context(), store.Record{Action: "lost"})} {
			if cove.ErrorCode(err) != cove.Unavailable || !strings.Contains(err.Error(), end) {
				t.Errorf("%s without %s: %v", what, end, err)
			}
		}
		if err := os.Rename(path+".away", path+end); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.Append(t.Context(), store.Record{Action: "again"}), s.Check(t.Context())); err != nil {
			t.Errorf("with %s again: %v", end, err)
		}
	}
}
