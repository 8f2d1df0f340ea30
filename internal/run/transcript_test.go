package run

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/message"
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

// TestTranscriptOnAFullDisk: a line for which there is no room is not there in part: those after it are whole, for a
// follower that has read meanwhile as well, and for the next server.
func TestTranscriptOnAFullDisk(t *testing.T) {
	dir := smallDisk(t, "size=64k")
	tr, err := newTranscript(dir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { tr.close() }()
	if err := tr.message(message.Message{Type: message.TypeThinking, Content: "one"}); err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 48<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	follower, err := openReader(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer follower.close()
	var heard []string
	hear := func(r *reader) (lines []string) {
		t.Helper()
		for {
			e, err := r.next()
			switch {
			case err != nil && err.Error() == "EOF":
				return lines
			case err != nil:
				t.Fatalf("after %q: %v", lines, err)
			case e.Message != nil:
				lines = append(lines, e.Message.Content)
			default:
				lines = append(lines, strings.TrimSpace(e.Log))
			}
		}
	}
	heard = append(heard, hear(follower)...)
	large := strings.Repeat("x", 32<<10) // the disk takes the beginning of it
	for _, write := range []func() error{
		func() error { return tr.log(large, time.Now()) },
		func() error { return tr.message(message.Message{Type: message.TypeThinking, Content: large}) },
	} {
		if err := write(); cove.ErrorCode(err) != cove.StorageFull {
			t.Fatalf("on a full disk: %v", err)
		}
		heard = append(heard, hear(follower)...)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := tr.log("two", time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := tr.message(message.Message{Type: message.TypeThinking, Content: "three"}); err != nil {
		t.Fatal(err)
	}
	const want = "one two three"
	if heard = append(heard, hear(follower)...); strings.Join(heard, " ") != want {
		t.Errorf("a follower hears %.80q", heard)
	}
	later, err := openReader(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer later.close()
	if got := hear(later); strings.Join(got, " ") != want {
		t.Errorf("later, one hears %.80q", got)
	}
	tr.close()
	if tr, err = openTranscript(dir, 1<<20); err != nil || tr.messages != 2 {
		t.Errorf("the next server finds %d messages, %v", tr.messages, err)
	}
}

// TestFollowerOfAPart: of a line that is being written, and then taken back, a follower has heard nothing.
func TestFollowerOfAPart(t *testing.T) {
	dir := t.TempDir()
	events := filepath.Join(dir, eventsFile)
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(events, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const one, two = `{"log":"one"}` + "\n", `{"log":"two"}` + "\n"
	write(one + `{"log":"a longer one that has no`)
	r, err := openReader(dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	if _, err := r.next(); err == nil || err.Error() != "EOF" {
		t.Fatalf("of a part: %v", err)
	}
	write(one + two)
	if e, err := r.next(); err != nil || e.Log != "two" || r.seq != 2 {
		t.Errorf("then %+v, %v, as %d", e, err, r.seq)
	}
}
