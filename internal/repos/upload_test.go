package repos

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

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
		id, _, err := s.Receive(t.Context(), me, bytes.NewReader(data))
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
	dropUploads(s, time.Now().Add(time.Hour)) // those that were refused before they were looked at
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
		if _, _, err := s.Receive(t.Context(), me, tt.from); cove.ErrorCode(err) != tt.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left := filesOfUploads(t, s); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	for i := range maxUploads + 1 {
		_, _, err := s.Receive(t.Context(), me, strings.NewReader("PACK"))
		if i == maxUploads != (cove.ErrorCode(err) == cove.Overloaded) {
			t.Errorf("upload %d: %v", i, err)
		}
	}
	if _, _, err := s.Receive(t.Context(), cove.KeyHolder("other"), strings.NewReader("PACK")); err != nil {
		t.Errorf("another caller: %v", err)
	}
}
