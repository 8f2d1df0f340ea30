//go:build linux

package git

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/git/gittest"
)

// bomb is a pack on top of own, and the commit that it brings.
func (a *attack) bomb(fill func(p *gittest.Pack) (tree string)) (id, pack string) {
	var p gittest.Pack
	id = p.Add(gittest.Commit, gittest.CommitText(fill(&p), a.own))
	return id, p.String()
}

// endless is a body without length and end.
type endless struct {
	head io.Reader
	read int64
}

func (e *endless) Read(p []byte) (int, error) {
	n, err := e.head.Read(p)
	if err == io.EOF {
		clear(p)
		n = len(p)
	}
	e.read += int64(n)
	return n, nil
}

// TestBombs: packs that are far more than they look (PROBES G8). Whatever is decided of them, the gateway needs no more
// memory, nothing is left behind, and the server has nothing of what was refused.
func TestBombs(t *testing.T) {
	a := newAttack(t, policyOfBombs)
	const limit = 64 << 20
	one := func(p *gittest.Pack, name, blob string) string {
		return p.Add(gittest.Tree, gittest.Entry("100644", name, blob))
	}
	chain := func(length int) func(p *gittest.Pack) string {
		return func(p *gittest.Pack) string {
			text := bytes.Repeat([]byte("line\n"), 200)
			at := p.Claim(gittest.Blob, int64(len(text)), text)
			for i := range length {
				more := fmt.Appendf(nil, "%d", i%10)
				at = p.Delta(at, int64(len(text)), more)
				text = append(text, more...)
			}
			return one(p, "file", gittest.ObjectID(gittest.Blob, text))
		}
	}
	push := func(fill func(p *gittest.Pack) string) func() answer {
		return func() answer { return a.update(a.bomb(fill)) }
	}
	stream := &endless{}
	for _, x := range []struct {
		name, says string // nothing: it is taken
		do         func() answer
	}{
		{"2,100,000 objects", "more than 2000000 objects", push(func(p *gittest.Pack) string {
			last := ""
			for i := range 2_100_000 {
				text := fmt.Appendf(nil, "%07d", i)
				if p.Claim(gittest.Blob, int64(len(text)), text); i == 0 {
					last = gittest.ObjectID(gittest.Blob, text)
				}
			}
			return one(p, "file", last)
		})},
		{"50,000 commits", "more than 40000 commits", push(func(p *gittest.Pack) string {
			tree := one(p, "file", p.Add(gittest.Blob, []byte("1")))
			parent := a.own
			for range 50_000 {
				parent = p.Add(gittest.Commit, gittest.CommitText(tree, parent))
			}
			return tree
		})},
		{"a tree with 1,000,000 entries", "too many files", push(func(p *gittest.Pack) string {
			blob := p.Add(gittest.Blob, []byte("1"))
			var tree bytes.Buffer
			for i := range 1_000_000 {
				tree.Write(gittest.Entry("100644", fmt.Sprintf("%07d", i), blob))
			}
			return p.Add(gittest.Tree, tree.Bytes())
		})},
		{"a file that is said to have 10 GB", "refused", push(func(p *gittest.Pack) string {
			text := []byte(strings.Repeat("0", 2000))
			p.Claim(gittest.Blob, 10<<30, text)
			return one(p, "file", gittest.ObjectID(gittest.Blob, text))
		})},
		{"a file that says to be smaller", "refused", push(func(p *gittest.Pack) string {
			text := []byte(strings.Repeat("0", 16<<20))
			p.Claim(gittest.Blob, 10, text)
			return one(p, "file", gittest.ObjectID(gittest.Blob, text))
		})},
		{"no length and no end", "the push has more than", func() answer {
			stream.head = strings.NewReader(lines(a.own+" "+a.fresh+" refs/heads/own"+words, "~") + a.pack)
			return a.send("POST", "/repo.git/git-receive-pack", stream, "Content-Type", "application/x-git-receive-pack-request")
		}},
		{"a chain of 100,000 differences", "cannot be looked into|too long", push(chain(100_000))},
		{"a chain of 4,000 differences", "", push(chain(4_000))},
	} {
		t.Run(x.name, func(t *testing.T) {
			if slow := strings.HasPrefix(x.name, "2,100,000") || strings.HasPrefix(x.name, "a chain of 100,000"); slow &&
				os.Getenv("COVE_TEST_LONG") == "" {
				t.Skip("it takes minutes: set COVE_TEST_LONG=1")
			}
			a.t = t
			before, peak := a.server.Refs(), a.l.peak()
			got := x.do()
			t.Logf("%d %.300q, %d MiB more", got.status, got.body, (a.l.peak()-peak)>>20)
			if got.refused != (x.says != "") || !regexp.MustCompile(x.says).MatchString(got.body) {
				t.Errorf("it does not say %q", x.says)
			}
			if after := a.server.Refs(); got.refused && after != before {
				t.Errorf("the server has changed:\n%s", after)
			}
			if grown := a.l.peak() - peak; grown > 96<<20 {
				t.Errorf("the gateway's memory has grown by %d MiB", grown>>20)
			}
			for _, pattern := range []string{a.l.path(home) + "/gateway/pushes/*", a.server.Dir + "/objects/tmp_objdir-*",
				a.server.Dir + "/objects/incoming-*"} {
				if left, err := filepath.Glob(pattern); err != nil || len(left) > 0 {
					t.Errorf("left behind: %q, %v", left, err)
				}
			}
		})
	}
	a.t = t
	if stream.read < limit || stream.read > 2*limit {
		t.Errorf("of a push without end %d bytes were read", stream.read)
	}
	a.server.Run("fsck", "--full", "--strict")
}
