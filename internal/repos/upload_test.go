package repos

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/folder"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// filesOfUploads returns the files of uploads that a store has.
func filesOfUploads(t *testing.T, s *Store) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(s.o.Home, "uploads", "*", "*up_*"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// unbounded is an upload of unknown length, by a caller without a quota.
var unbounded = Sending{Length: -1, Fits: func(int64, int64) error { return nil }}

// TestUpload: a folder that was packed elsewhere becomes a workspace, once, and for the caller that has sent it.
func TestUpload(t *testing.T) {
	dir := project(t)
	plain(t, dir, "remote", "add", "origin", "git@github.com:a/b.git")
	put(t, dir, "changed", "now\n")
	p, err := folder.NewPack(t.Context(), dir, folder.Wanted{Uncommitted: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var pack bytes.Buffer
	if err := p.Write(t.Context(), &pack); err != nil {
		t.Fatal(err)
	}
	s, err := Open(Options{Home: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	me, other := cove.KeyHolder("me"), cove.KeyHolder("other")
	send := func(data []byte) string {
		t.Helper()
		id, _, err := s.Receive(t.Context(), me, unbounded, bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		return string(id)
	}
	create := func(who cove.Principal, u workspace.Upload, more func(*workspace.Repository)) (workspace.Workspace, error) {
		r := &workspace.Repository{Source: folder.Name(dir), Upload: &u}
		if more != nil {
			more(r)
		}
		return s.Create(t.Context(), workspace.Spec{ID: cove.NewSandboxID(), Name: "otter", Owner: who, Repository: r}, nil)
	}
	of := workspace.Upload{ID: send(pack.Bytes()), Commit: p.Commit, From: p.From, Remote: p.Remote}
	if _, err := create(other, of, nil); cove.ErrorCode(err) != cove.NotFound {
		t.Errorf("another caller: %v", err)
	}
	w, err := create(me, of, nil)
	if err != nil {
		t.Fatal(err)
	}
	if w.Base != p.Commit || w.From != "main" || w.Branch != "cove/otter" || w.Remote != "https://github.com/a/b.git" ||
		w.Source != folder.Name(dir) || w.Borrowed != "" {
		t.Errorf("%+v", w)
	}
	if got(t, w.Directory, "changed") != "now" || plain(t, w.Directory, "status", "--porcelain") != "" ||
		plain(t, w.Directory, "log", "--format=%s") != "What was not committed\none" {
		t.Error(plain(t, w.Directory, "status"), plain(t, w.Directory, "log"))
	}
	if _, err := create(me, of, nil); cove.ErrorCode(err) != cove.NotFound {
		t.Errorf("a second time: %v", err)
	}

	// What is wrong with one is said, and neither it nor a workspace stays.
	broken := bytes.Clone(pack.Bytes())
	broken[len(broken)/2] ^= 1
	for name, tt := range map[string]struct {
		data []byte
		do   func(*workspace.Upload)
		more func(*workspace.Repository)
	}{
		"a broken pack":     {broken, nil, nil},
		"half of a pack":    {pack.Bytes()[:pack.Len()/2], nil, nil},
		"another commit":    {pack.Bytes(), func(u *workspace.Upload) { u.Commit = strings.Repeat("1", 40) }, nil},
		"no commit":         {pack.Bytes(), func(u *workspace.Upload) { u.Commit = "--all" }, nil},
		"a shallow word":    {pack.Bytes(), func(u *workspace.Upload) { u.Shallow = []string{"x\ny"} }, nil},
		"a directory":       {pack.Bytes(), nil, func(r *workspace.Repository) { r.Source = dir }},
		"with a beginning":  {pack.Bytes(), nil, func(r *workspace.Repository) { r.From = "main" }},
		"with ignored ones": {pack.Bytes(), nil, func(r *workspace.Repository) { r.Ignored = []string{"x"} }},
	} {
		u := of
		u.ID = send(tt.data)
		if tt.do != nil {
			tt.do(&u)
		}
		if _, err := create(me, u, tt.more); cove.ErrorCode(err) != cove.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	if all, err := s.List(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
	if left, err := os.ReadDir(s.workspaces); err != nil || len(left) != 3 { // and two locks
		t.Errorf("%v, %v", left, err)
	}
	DropUploads(s.o.Home, time.Now().Add(time.Hour)) // those that were refused before they were looked at
	if left := filesOfUploads(t, s); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestReceive: an upload has a bounded size, a caller a bounded number, and what breaks off leaves nothing.
func TestReceive(t *testing.T) {
	s, err := Open(Options{Home: t.TempDir(), MaxImport: 1000})
	if err != nil {
		t.Fatal(err)
	}
	me := cove.KeyHolder("me")
	for name, tt := range map[string]struct {
		from io.Reader
		code cove.Code
	}{
		"too large":  {strings.NewReader("PACK" + strings.Repeat("x", 1000)), cove.TooLarge},
		"no pack":    {strings.NewReader("hello"), cove.InvalidArgument},
		"empty":      {strings.NewReader(""), cove.InvalidArgument},
		"broken off": {io.MultiReader(strings.NewReader("PACKxx"), iotest.ErrReader(errors.New("gone"))), cove.Canceled},
	} {
		if _, _, err := s.Receive(t.Context(), me, unbounded, tt.from); cove.ErrorCode(err) != tt.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left := filesOfUploads(t, s); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	for i := range maxUploads + 1 {
		_, _, err := s.Receive(t.Context(), me, unbounded, strings.NewReader("PACK"))
		if i == maxUploads != (cove.ErrorCode(err) == cove.Overloaded) {
			t.Errorf("upload %d: %v", i, err)
		}
	}
	if _, _, err := s.Receive(t.Context(), cove.KeyHolder("other"), unbounded, strings.NewReader("PACK")); err != nil {
		t.Errorf("another caller: %v", err)
	}
}

// source is an upload of a size that counts what is read of it.
type source struct {
	io.Reader
	read int64
}

func newSource(size int64) *source {
	return &source{Reader: io.MultiReader(strings.NewReader("PACK"), io.LimitReader(zeros{}, size-4))}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.read += int64(n)
	return n, err
}

// TestUploadsAreBounded: what comes and what waits counts for its caller; what is more is refused before it is read,
// where its length is known, and otherwise before it is stored. One that is taken does not count.
func TestUploadsAreBounded(t *testing.T) {
	const mib = 1 << 20
	s, err := Open(Options{Home: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	me := cove.KeyHolder("me")
	full := cove.Errorf(cove.Conflict, "no more")
	fits := func(sent, more int64) error {
		if sent+more > 20*mib {
			return full
		}
		return nil
	}
	send := func(length, size int64) (cove.UploadID, *source, error) {
		from := newSource(size)
		id, _, err := s.Receive(t.Context(), me, Sending{Length: length, Fits: fits}, from)
		return id, from, err
	}
	uploaded := func(want int64, but string) {
		t.Helper()
		err := s.Disks().Uploaded(me, but, func(got int64) error {
			if got != want {
				t.Errorf("%d bytes, not %d", got, want)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	if _, from, err := send(21*mib, 21*mib); !errors.Is(err, full) || from.read > 0 {
		t.Errorf("of known length: %v, %d bytes were read", err, from.read)
	}
	if _, from, err := send(-1, 30*mib); !errors.Is(err, full) || from.read > 20*mib+mib {
		t.Errorf("of unknown length: %v, %d bytes were read", err, from.read)
	}
	uploaded(0, "")
	first, _, err := send(12*mib, 12*mib)
	if err != nil {
		t.Fatal(err)
	}
	if _, from, err := send(9*mib, 9*mib); !errors.Is(err, full) || from.read > 0 {
		t.Errorf("beside another: %v, %d bytes were read", err, from.read)
	}
	uploaded(12*mib, "")
	uploaded(0, string(first))
	// Of several at once, none takes what another has reserved.
	begun, end := make(chan struct{}), make(chan struct{})
	done := make(chan error)
	go func() {
		_, _, err := s.Receive(t.Context(), me, Sending{Length: 8 * mib, Fits: fits},
			&stalled{Reader: newSource(8 * mib), begun: begun, end: end})
		done <- err
	}()
	<-begun
	uploaded(20*mib, "")
	if _, _, err := send(-1, mib); !errors.Is(err, full) {
		t.Errorf("while another comes: %v", err)
	}
	close(end)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if f, err := takeUpload(s, me, string(first)); err != nil {
		t.Error(err)
	} else {
		f.Close()
	}
	uploaded(8*mib, "")
	if _, _, err := send(12*mib, 12*mib); err != nil {
		t.Errorf("in place of one that was taken: %v", err)
	}
	DropUploads(s.o.Home, time.Now().Add(uploadAge+time.Minute))
	uploaded(0, "")
}

// TestUploadOfADeadProcess: another process that opens the store removes what a dead one has left of an upload, at
// once, and leaves an upload that comes, however long it takes.
func TestUploadOfADeadProcess(t *testing.T) {
	s, err := Open(Options{Home: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	me := cove.KeyHolder("me")
	begun, end, done := make(chan struct{}), make(chan struct{}), make(chan error)
	var id cove.UploadID
	go func() {
		var err error
		id, _, err = s.Receive(t.Context(), me, unbounded, &stalled{Reader: newSource(100), begun: begun, end: end})
		done <- err
	}()
	<-begun
	comes := filesOfUploads(t, s)
	dead := filepath.Join(filepath.Dir(comes[0]), coming+string(cove.NewUploadID()))
	if err := os.WriteFile(dead, []byte("PACK"), 0o600); err != nil {
		t.Fatal(err)
	}
	other, err := Open(Options{Home: s.o.Home})
	if err != nil {
		t.Fatal(err)
	}
	if left := filesOfUploads(t, other); !slices.Equal(left, comes) {
		t.Errorf("there are %q, not %q", left, comes)
	}
	DropUploads(s.o.Home, time.Now().Add(time.Hour))
	if left := filesOfUploads(t, other); !slices.Equal(left, comes) {
		t.Errorf("after an hour there are %q, not %q", left, comes)
	}
	close(end)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if f, err := takeUpload(other, me, string(id)); err != nil {
		t.Error(err)
	} else {
		f.Close()
	}
}

// stalled is an upload that waits after its first bytes.
type stalled struct {
	io.Reader
	begun, end chan struct{}
	once       sync.Once
}

func (s *stalled) Read(p []byte) (int, error) {
	s.once.Do(func() {
		close(s.begun)
		<-s.end
	})
	return s.Reader.Read(p)
}

// TestUploadsLeaveTheFloor: uploads stop before what Cove leaves free of the host's disk, whoever sends them.
func TestUploadsLeaveTheFloor(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a file system of its own needs root")
	}
	const mib = 1 << 20
	home := t.TempDir()
	if err := unix.Mount("tmpfs", home, "tmpfs", 0, "size=100m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(home, 0) })
	s, err := Open(Options{Home: home})
	if err != nil {
		t.Fatal(err)
	}
	owner := cove.MachineOwner()
	for name, length := range map[string]int64{"known": 97 * mib, "unknown": -1} {
		from := newSource(97 * mib)
		_, _, err := s.Receive(t.Context(), owner, Sending{Length: length, Fits: unbounded.Fits}, from)
		if cove.ErrorCode(err) != cove.StorageFull || !strings.Contains(err.Error(), "leaves 5 alone") ||
			length > 0 && from.read > 0 {
			t.Errorf("%s: %v, %d bytes were read", name, err, from.read)
		}
		if room, err := s.Disks().Free(); err != nil || room.Free < 99*mib {
			t.Errorf("%s: %+v, %v", name, room, err)
		}
	}
	if _, _, err := s.Receive(t.Context(), owner, Sending{Length: 90 * mib, Fits: unbounded.Fits},
		newSource(90*mib)); err != nil {
		t.Error(err)
	}
}
