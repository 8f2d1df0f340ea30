package instance

import (
	"os"
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
}
