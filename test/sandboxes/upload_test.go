package sandboxes

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/client"
)

// sending is an upload that comes in parts.
type sending struct {
	*io.PipeWriter
	done chan error
}

// sends begins an upload with its first part.
func sends(t *testing.T, c *client.Client, mib int) sending {
	t.Helper()
	r, w := io.Pipe()
	s := sending{w, make(chan error, 1)}
	t.Cleanup(func() { w.CloseWithError(context.Canceled) })
	go func() {
		_, err := c.Upload(t.Context(), r)
		r.CloseWithError(err)
		s.done <- err
	}()
	s.more("PACK", mib)
	return s
}

// more sends more of it. What the server refuses, done tells.
func (s sending) more(head string, mib int) {
	_, _ = s.Write(append([]byte(head), make([]byte, mib<<20-len(head))...))
}

// TestUploadOfAKilledServer: what came of an upload when its server was killed is gone at the start of the next one,
// and does not count for the key. What has come whole stays, and no other upload touches one that comes.
func TestUploadOfAKilledServer(t *testing.T) {
	l := newLab(t)
	key := l.newKey("--disk-mb", "24")
	caller := func() *client.Client {
		t.Helper()
		c, err := client.New(client.Options{Address: l.serve("--config", l.in("cove.yaml")), Key: key})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	files := func(pattern string) (sizes []int64) {
		t.Helper()
		all, err := filepath.Glob(l.in("home/uploads/*/" + pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range all {
			if info, err := os.Stat(path); err == nil { // else it has just been renamed
				sizes = append(sizes, info.Size())
			}
		}
		return sizes
	}
	const mib = 1 << 20
	parts := func(size int64) func() bool {
		return func() bool {
			all := files(".new-*")
			return len(all) == 1 && all[0] >= size
		}
	}
	c := caller()
	first := sends(t, c, 8)
	l.eventually("most of it has come", parts(7*mib))
	small := sends(t, c, 1)
	small.Close()
	if err := <-small.done; err != nil {
		t.Fatal(err)
	}
	if !parts(7 * mib)() {
		t.Fatalf("beside an upload that comes, another one leaves of it %d bytes", files(".new-*"))
	}
	first.more("", 1)
	first.Close()
	if err := <-first.done; err != nil {
		t.Fatal(err)
	}

	broken := sends(t, c, 8)
	l.eventually("most of it has come", parts(7*mib))
	full := sends(t, c, 5)
	full.Close()
	if err := <-full.done; cove.ErrorCode(err) != cove.Conflict || !strings.Contains(err.Error(), "left of 24 MiB") {
		t.Errorf("beside the others: %v", err)
	}
	if err := syscall.Kill(l.serverPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	broken.CloseWithError(context.Canceled) // the client waits for its reader
	if err := <-broken.done; err == nil {
		t.Error("a server that is dead has an upload")
	}
	if !parts(7 * mib)() {
		t.Fatalf("the server that was killed has left %d bytes", files(".new-*"))
	}
	c = caller()
	if left := files(".new-*"); len(left) > 0 {
		t.Errorf("left behind: %d bytes", left)
	}
	if whole := files("up_*"); len(whole) != 2 {
		t.Errorf("%d bytes of uploads wait for their sandboxes", whole)
	}
	again := sends(t, c, 9)
	again.Close()
	if err := <-again.done; err != nil {
		t.Errorf("with room for it: %v", err)
	}
}
