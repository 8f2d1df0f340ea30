package instance

import (
	"context"
	"os"
	"slices"
	"testing"

	"github.com/cove-sandbox/cove"
)

func TestAliveAndDead(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	living, err := Hold(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer living.Release()
	crashed, err := Hold(dir)
	if err != nil {
		t.Fatal(err)
	}
	crashed.lock.Close() // as the kernel does at the end of the process
	elsewhere, err := Hold(other)
	if err != nil {
		t.Fatal(err)
	}
	defer elsewhere.Release()
	for _, c := range []struct {
		name  string
		id    cove.InstanceID
		alive bool
	}{
		{"living", living.ID, true},
		{"crashed", crashed.ID, false},
		{"of another run directory", elsewhere.ID, false},
		{"never was", cove.NewInstanceID(), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if alive := Alive(dir, c.id); alive != c.alive {
				t.Errorf("alive %v, want %v", alive, c.alive)
			}
		})
	}
	for _, i := range []*Instance{living, crashed} {
		if err := os.MkdirAll(i.Files()+"/deep", 0o700); err != nil {
			t.Fatal(err)
		}
	}
	Forget(dir, crashed.ID)
	Forget(dir, living.ID)
	for i, want := range map[*Instance]bool{living: true, crashed: false} {
		if _, err := os.Stat(i.Files()); err == nil != want {
			t.Errorf("files of %s: %v, want them to be there: %v", i.ID, err, want)
		}
	}
	if ids, err := List(dir); err != nil || len(ids) != 1 || ids[0] != living.ID {
		t.Errorf("after Forget: %v, %v", ids, err)
	}
	if err := os.MkdirAll(crashed.Files(), 0o700); err != nil { // written to once more after it was forgotten
		t.Fatal(err)
	}
	if ids, err := List(dir); err != nil || len(ids) != 2 || !slices.Contains(ids, crashed.ID) {
		t.Errorf("files without a lock: %v, %v", ids, err)
	}
}

// TestAwait: a lock that is given back soon is waited for, and one that is not is a conflict.
func TestAwait(t *testing.T) {
	dir := t.TempDir()
	held, err := LockHome(dir)
	if err != nil {
		t.Fatal(err)
	}
	tries := 0
	lock := func() (*os.File, error) {
		if tries++; tries == 3 {
			held.Close()
		}
		return LockHome(dir)
	}
	f, err := Await(t.Context(), lock)
	if err != nil || tries < 3 {
		t.Fatalf("after %d tries: %v", tries, err)
	}
	defer f.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Await(ctx, lock); cove.ErrorCode(err) != cove.Conflict {
		t.Errorf("of another one: %v", err)
	}
	if _, err := Await(t.Context(), func() (*os.File, error) { return LockHome(dir + "/none") }); err == nil ||
		cove.ErrorCode(err) == cove.Conflict {
		t.Errorf("of a directory that is not there: %v", err)
	}
}
