package inspect

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1" // what git names objects and ends packs with
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"
	"strings"

	"github.com/cove-sandbox/cove/internal/git/policy"
)

// git runs git in one repository, somewhere where nothing it does matters. What it writes is hostile.
type git struct {
	box    box
	dir    string // of the repository, there
	sha256 bool   // its objects' names are
}

// box runs git.
type box interface {
	// run runs a program, which reads stdin (nil: nothing), and hands its output to read while it runs. What read
	// leaves is dropped. Errors: failed, what read says, and what there is wrong with the box.
	run(ctx context.Context, stdin io.Reader, read func(io.Reader) error, args ...string) error
	// write puts a file there.
	write(ctx context.Context, path string, data []byte) error
}

// failed is that a program has ended with another code than 0.
type failed struct {
	code   int
	stderr string // the beginning of it
}

func (f *failed) Error() string { return fmt.Sprintf("git ended with %d: %.300q", f.code, f.stderr) }

// always is configuration that no repository changes: nothing else is run, and what is read is bounded.
var always = []string{"-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0", "-c", "core.bigFileThreshold=8m", "-c",
	"pack.threads=1", "-c", "protocol.allow=never",
	"-c", "core.commitGraph=false", "-c", "core.multiPackIndex=false", "-c", "pack.windowMemory=64m", "-c",
	"core.deltaBaseCacheLimit=64m"}

func (g git) run(ctx context.Context, stdin io.Reader, read func(io.Reader) error, args ...string) error {
	return g.box.run(ctx, stdin, read, append(append([]string{"git", "--git-dir=" + g.dir}, always...), args...)...)
}

func nothing(io.Reader) error { return nil }

// create makes an empty repository.
func create(ctx context.Context, b box, dir string, sha256 bool) (git, error) {
	format := "sha1"
	if sha256 {
		format = "sha256"
	}
	g := git{b, dir, sha256}
	return g, b.run(ctx, nil, nothing, "git", "init", "-q", "--bare", "--template=", "--object-format="+format, dir)
}

// aside is another empty repository beside g, each time anew.
func (g git) aside(ctx context.Context) (git, error) {
	dir := g.dir + "-aside"
	if err := g.box.run(ctx, nil, nothing, "rm", "-rf", dir); err != nil {
		return git{}, err
	}
	return create(ctx, g.box, dir, g.sha256)
}

// index reads a pack into the repository, and nothing may follow it. A pack whose deltas need what it lacks is refused.
func (g git) index(ctx context.Context, pack io.Reader, limit int64) error {
	_, said, err := g.indexPack(ctx, pack, limit)
	if f := (*failed)(nil); errors.As(err, &f) {
		return defect("its pack is refused: " + complaint(f.stderr))
	}
	if err == nil && said != "" {
		return followed
	}
	return err
}

const followed = defect("its pack is refused: something follows it")

// check reads a pack into the repository as index does, and has git check its objects one by one. lacks are the ids,
// sorted, of what its trees have as .gitattributes or .gitmodules and the repository does not have: these contents are
// not checked. The name of the pack is for recheck.
func (g git) check(ctx context.Context, pack io.Reader, limit int64) (name string, lacks []string, err error) {
	name, said, err := g.indexPack(ctx, pack, limit, "--fsck-objects")
	lacks, err = unchecked(said, err)
	return name, lacks, err
}

// recheck has git check the objects of a pack again that is in the repository.
func (g git) recheck(ctx context.Context, name string) error {
	said, err := g.output(ctx, nil, "index-pack", "--verify", "--fsck-objects", g.dir+"/objects/pack/pack-"+name+".pack")
	_, err = unchecked(said, err)
	return err
}

// indexPack has git read a pack. It returns the pack's name, and what git says after it.
func (g git) indexPack(ctx context.Context, pack io.Reader, limit int64, options ...string) (name, said string,
	err error) {
	sum := newTrailer(pack, g.sha256)
	args := append([]string{"index-pack", "--stdin", "--max-input-size=" + strconv.FormatInt(limit, 10)}, options...)
	said, err = g.output(ctx, sum, args...)
	name = sum.whole()
	said, named := strings.CutPrefix(said, "pack\t"+name+"\n")
	if err == nil && !named {
		err = followed
	}
	return name, said, err
}

// output returns the beginning of what git writes: maxFindings bytes.
func (g git) output(ctx context.Context, stdin io.Reader, args ...string) (said string, err error) {
	err = g.run(ctx, stdin, func(out io.Reader) error {
		data, err := io.ReadAll(io.LimitReader(out, maxFindings))
		said = string(data)
		return err
	}, args...)
	return said, err
}

// maxFindings bounds the findings of git about a pack, in bytes.
const maxFindings = 256 << 10

// files counts the files of a commit.
func (g git) files(ctx context.Context, commit string) (n int, err error) {
	err = g.records(ctx, nil, func(next func() (string, error)) error {
		_, err := next()
		if err == nil {
			n++
		}
		return err
	}, "ls-tree", "-r", "-z", "--name-only", "--full-tree", commit)
	return n, err
}

// lacks returns the ids of objects that the repository does not have.
func (g git) lacks(ctx context.Context, ids []string) (missing []string, err error) {
	err = g.lines(ctx, strings.NewReader(strings.Join(ids, "\n")+"\n"), func(line string) error {
		if id, is, _ := strings.Cut(line, " "); is == "missing" {
			missing = append(missing, id)
		}
		return nil
	}, "cat-file", "--batch-check=%(objectname) %(objecttype)")
	return missing, err
}

// trailer reads a pack that ends with the checksum of all before, which git has
// looked at: but at one that it found the end of itself.
type trailer struct {
	r    io.Reader
	sum  hash.Hash
	last []byte // not in sum yet: at most the size of one
}

func newTrailer(r io.Reader, sha256Names bool) *trailer {
	if sha256Names {
		return &trailer{r: r, sum: sha256.New()}
	}
	return &trailer{r: r, sum: sha1.New()}
}

func (t *trailer) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	t.last = append(t.last, p[:n]...)
	if more := len(t.last) - t.sum.Size(); more > 0 {
		t.sum.Write(t.last[:more])
		t.last = append(t.last[:0], t.last[more:]...)
	}
	return n, err
}

// whole is the checksum of what has been read, if it is one pack to its end.
func (t *trailer) whole() string {
	io.Copy(io.Discard, t)
	if !bytes.Equal(t.sum.Sum(nil), t.last) {
		return ""
	}
	return hex.EncodeToString(t.last)
}

// complaint returns the defect that git reports in a pack, in known words: the rest may be the attacker's.
func complaint(stderr string) string {
	for _, known := range []struct{ says, means string }{
		{"unresolved delta", "it has deltas of objects that it lacks"},
		{"fsck error", "an object in it is malformed or dangerous"},
		{"SHA1 COLLISION", "an object in it is not what its name says"},
		{"early EOF", "it is cut short"},
		{"pack is corrupted", "it is corrupt"},
		{"maximum allowed size", "it is too large"},
		{"disk", "it is too large"},
		{"File too large", "it is too large"},
		{"memory", "it needs too much memory"},
		{"object of unexpected type", "an object in it is malformed or dangerous"},
	} {
		if strings.Contains(stderr, known.says) {
			return known.means + found(stderr)
		}
	}
	return "git cannot read it"
}

// shallow says which commits of the repository have parents that it lacks.
func (g git) shallow(ctx context.Context, commits []string) error {
	if len(commits) == 0 {
		return nil
	}
	return g.box.write(ctx, g.dir+"/shallow", []byte(strings.Join(commits, "\n")+"\n"))
}

// Sizes of what is read at once, in bytes.
const (
	maxLine   = 8 << 10
	maxRecord = 64 << 10
)

// lines hands each line of git's output to f.
func (g git) lines(ctx context.Context, stdin io.Reader, f func(string) error, args ...string) error {
	return g.scan(ctx, stdin, '\n', maxLine, func(next func() (string, error)) error {
		line, err := next()
		if err != nil {
			return err
		}
		return f(line)
	}, args...)
}

// maxListing is how long the processor may be busy listing objects, in seconds: a
// chain of differences that no git makes is walked through for each of them.
const maxListing = "30"

// list hands kind and id of each object of the repository to f.
func (g git) list(ctx context.Context, f func(kind, id string) error) error {
	limited := git{capped{g.box}, g.dir, g.sha256}
	return limited.lines(ctx, nil, func(line string) error {
		kind, id, _ := strings.Cut(line, " ")
		return f(kind, id)
	}, "cat-file", "--batch-all-objects", "--unordered", "--buffer", "--batch-check=%(objecttype) %(objectname)")
}

// capped is a box whose programs have so much time of the processor.
type capped struct{ box }

func (c capped) run(ctx context.Context, stdin io.Reader, read func(io.Reader) error, args ...string) error {
	return c.box.run(ctx, stdin, read,
		append([]string{"sh", "-c", `ulimit -t ` + maxListing + ` && exec "$@"`, "sh"}, args...)...)
}

// records has f read git's output, which ends each field with NUL, a record at a time.
func (g git) records(
	ctx context.Context, stdin io.Reader, f func(next func() (string, error)) error, args ...string,
) error {
	return g.scan(ctx, stdin, 0, maxRecord, f, args...)
}

func (g git) scan(
	ctx context.Context, stdin io.Reader, end byte, most int, f func(next func() (string, error)) error, args ...string,
) error {
	err := g.run(ctx, stdin, func(out io.Reader) error {
		r := bufio.NewReaderSize(out, most)
		next := func() (string, error) {
			field, err := r.ReadSlice(end)
			switch {
			case err == io.EOF && len(field) == 0:
				return "", io.EOF
			case err == bufio.ErrBufferFull, err == io.EOF:
				return "", defect("it has names that are too long, or cannot be read")
			case err != nil:
				return "", err
			}
			return string(field[:len(field)-1]), nil
		}
		for {
			if err := f(next); err == io.EOF {
				return nil
			} else if err != nil {
				return err
			}
		}
	}, args...)
	if bad := (*failed)(nil); errors.As(err, &bad) {
		return defect("it cannot be looked into: git does not find its way through it")
	}
	return err
}

// objects hands the content of each object to f. What f leaves is skipped.
func (g git) objects(ctx context.Context, ids []string, f func(id, kind string, content io.Reader) error) error {
	if len(ids) == 0 {
		return nil
	}
	return g.run(ctx, strings.NewReader(strings.Join(ids, "\n")+"\n"), func(out io.Reader) error {
		r := bufio.NewReaderSize(out, 64<<10)
		for range ids {
			head, err := r.ReadSlice('\n')
			if err != nil {
				return defect("it cannot be read")
			}
			fields := strings.Fields(string(head))
			if len(fields) == 2 && fields[1] == "missing" {
				continue
			}
			if len(fields) != 3 || !policy.IsObjectID(fields[0]) {
				return defect("it cannot be read")
			}
			size, err := strconv.ParseInt(fields[2], 10, 64)
			if err != nil || size < 0 {
				return defect("it cannot be read")
			}
			content := &io.LimitedReader{R: r, N: size}
			if err := f(fields[0], fields[1], content); err != nil {
				return err
			}
			if _, err := io.Copy(io.Discard, content); err != nil || content.N > 0 {
				return defect("it cannot be read")
			}
			if end, err := r.ReadByte(); err != nil || end != '\n' {
				return defect("it cannot be read")
			}
		}
		return nil
	}, "cat-file", "--batch", "--buffer")
}

// headers reads the head of a commit or tag: lines of a name and a value, until an empty one.
func headers(content io.Reader, f func(name, value string)) error {
	r := bufio.NewReaderSize(content, maxLine)
	for {
		line, err := r.ReadSlice('\n')
		if err != nil || len(line) == 1 {
			if err == bufio.ErrBufferFull { // no parent and no object is as long as that
				for err == bufio.ErrBufferFull {
					_, err = r.ReadSlice('\n')
				}
				continue
			}
			return nil
		}
		name, value, _ := strings.Cut(string(line[:len(line)-1]), " ")
		f(name, value)
	}
}
