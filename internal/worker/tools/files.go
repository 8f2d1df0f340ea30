package tools

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cove-sandbox/cove/internal/atomicfile"
)

func (s *Set) fileTools() []tool {
	return []tool{
		define("read",
			fmt.Sprintf("Reads a text file, each line with its number. At most %d lines come at once; offset says with which "+
				"to begin.", maxLines),
			`"path":{"type":"string","minLength":1},"offset":{"type":"integer","minimum":1},"limit":{"type":"integer",`+
				`"minimum":1}`,
			[]string{"path"}, s.read),
		define("write", "Writes a file, with the directories above it. What was in it is gone; to change a part, use edit.",
			`"path":{"type":"string","minLength":1},"content":{"type":"string"}`,
			[]string{"path", "content"}, s.write),
		define("edit",
			"Replaces text in a file. old is the exact text, without the line numbers that read shows, and is in the file "+
				"once: give as much around it as that takes, or set all to replace every occurrence.",
			`"path":{"type":"string","minLength":1},"old":{"type":"string","minLength":1},"new":{"type":"string"},`+
				`"all":{"type":"boolean"}`,
			[]string{"path", "old", "new"}, s.edit),
		define("list", "Lists a directory: names, sizes, where links lead. Directories end in a slash.",
			`"path":{"type":"string"}`, []string{}, s.list),
	}
}

type readInput struct {
	Path          string
	Offset, Limit int
}

// open opens a regular file; other files could block a tool for ever.
func open(path string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case info.IsDir():
		err = fmt.Errorf("%s is a directory: use list", path)
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%s is no regular file", path)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

func (s *Set) read(ctx context.Context, in readInput) (string, error) {
	f, info, err := open(s.at(in.Path))
	if err != nil {
		return "", err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 64<<10)
	if head, _ := r.Peek(8000); binary(head) {
		return "", fmt.Errorf("%s, %d bytes: %w", in.Path, info.Size(), errBinary)
	}
	first, most := max(1, in.Offset), maxLines
	if in.Limit > 0 {
		most = min(in.Limit, maxLines)
	}
	var b strings.Builder
	last, n := 0, 0 // lines shown and seen
	full := false
	for {
		if n%10_000 == 0 && ctx.Err() != nil {
			return "", ctx.Err()
		}
		text, err := readLine(r)
		if err == io.EOF {
			break
		}
		if err != nil {
			return "", err
		}
		n++
		if n < first || full {
			continue
		}
		shown := fmt.Sprintf("%6d\t%s\n", n, text)
		if full = n-first >= most || b.Len()+len(shown) > maxOutput; full {
			continue
		}
		b.WriteString(shown)
		last = n
	}
	switch {
	case n == 0:
		return "(the file is empty)", nil
	case first > n:
		return "", fmt.Errorf("%s has %d lines", in.Path, n)
	case full:
		fmt.Fprintf(&b, "(lines %d to %d of %d; offset %d goes on)", first, last, n, last+1)
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// readLine reads a line of any length, and returns its visible part.
func readLine(r *bufio.Reader) (string, error) {
	var kept []byte
	more := 0
	for {
		part, err := r.ReadSlice('\n')
		take := min(len(part), maxLine+4-len(kept)) // with the newline, and a truncated rune
		kept = append(kept, part[:take]...)
		more += len(part) - take
		if err == bufio.ErrBufferFull {
			continue
		}
		if err != nil && (err != io.EOF || len(kept) == 0) {
			return "", err
		}
		if more == 0 {
			return line(string(kept)), nil
		}
		head := strings.ToValidUTF8(string(kept[:maxLine]), "")
		return fmt.Sprintf("%s [%d more bytes of this line]", head, len(kept)+more-len(head)), nil
	}
}

type writeInput struct{ Path, Content string }

func (s *Set) write(_ context.Context, in writeInput) (string, error) {
	path := s.at(in.Path)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return "", err
	}
	_, err := os.Stat(path)
	if err := replace(path, []byte(in.Content)); err != nil {
		return "", err
	}
	done := "wrote"
	if errors.Is(err, fs.ErrNotExist) {
		done = "created"
	}
	return fmt.Sprintf("%s %s: %d lines, %d bytes", done, in.Path, lines(in.Content), len(in.Content)), nil
}

func lines(text string) int {
	n := strings.Count(text, "\n")
	if text != "" && !strings.HasSuffix(text, "\n") {
		n++
	}
	return n
}

// replace writes a file so that a full disk does not destroy the old content. A file with several names, or of another
// owner, is written in place.
func replace(path string, data []byte) error {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return os.WriteFile(path, data, 0o666)
	}
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() && info.Mode()&fs.ModeSymlink == 0 {
		return fmt.Errorf("%s is no regular file", path)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode().IsRegular() && st.Nlink == 1 &&
		int(st.Uid) == os.Geteuid() && info.Mode()&0o200 != 0 {
		if err := atomicfile.Write(path, data, info.Mode().Perm()); !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return os.WriteFile(path, data, 0o666)
}

type editInput struct {
	Path, Old, New string
	All            bool
}

func (s *Set) edit(_ context.Context, in editInput) (string, error) {
	if in.Old == in.New {
		return "", errors.New("old and new are the same")
	}
	path := s.at(in.Path)
	f, info, err := open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info.Size() > maxFile {
		return "", fmt.Errorf("%s has %d bytes, and at most %d are edited: use a program, such as sed", in.Path,
			info.Size(), maxFile)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return "", err
	}
	at := occurrences(data, []byte(in.Old))
	switch {
	case len(at) == 0 && bytes.Contains(data, []byte("\r\n")) && !strings.Contains(in.Old, "\r"):
		if len(occurrences(data, []byte(crlf(in.Old)))) > 0 {
			return "", fmt.Errorf("old is not in %s: lines end in CRLF (\\r\\n) there, and so they must in old and new", in.Path)
		}
		fallthrough
	case len(at) == 0:
		return "", fmt.Errorf("old is not in %s: it must be the exact text, spaces and tabs included; read the file again",
			in.Path)
	case len(at) > 1 && !in.All:
		const most = 10
		var where []string
		for _, i := range at[:min(len(at), most)] {
			where = append(where, fmt.Sprint(1+bytes.Count(data[:i], []byte("\n"))))
		}
		if len(at) > most {
			where = append(where, "…")
		}
		return "", fmt.Errorf("old is in %s %d times, at lines %s: give more of the text around the one that is meant, "+
			"or set all", in.Path, len(at), strings.Join(where, ", "))
	}
	changed := bytes.ReplaceAll(data, []byte(in.Old), []byte(in.New))
	if err := replace(path, changed); err != nil {
		return "", err
	}
	if len(at) > 1 {
		return fmt.Sprintf("replaced %d occurrences in %s", len(at), in.Path), nil
	}
	begin := 1 + bytes.Count(data[:at[0]], []byte("\n"))
	return fmt.Sprintf("replaced at line %d of %s: %d lines by %d", begin, in.Path, lines(in.Old), lines(in.New)), nil
}

func crlf(text string) string { return strings.ReplaceAll(text, "\n", "\r\n") }

// occurrences returns the positions of a text, counted as by ReplaceAll.
func occurrences(data, text []byte) (at []int) {
	for from := 0; ; {
		i := bytes.Index(data[from:], text)
		if i < 0 {
			return at
		}
		at = append(at, from+i)
		from += i + len(text)
	}
}

func (s *Set) list(_ context.Context, in struct{ Path string }) (string, error) {
	path := s.at(in.Path)
	entries, err := os.ReadDir(path)
	if err != nil {
		return "", err
	}
	if len(entries) == 0 {
		return "(the directory is empty)", nil
	}
	var b strings.Builder
	for i, e := range entries {
		if i == maxNames {
			fmt.Fprintf(&b, "(%d more)\n", len(entries)-i)
			break
		}
		switch {
		case e.IsDir():
			fmt.Fprintf(&b, "%s/\n", e.Name())
		case e.Type()&fs.ModeSymlink != 0:
			to, _ := os.Readlink(filepath.Join(path, e.Name()))
			fmt.Fprintf(&b, "%s -> %s\n", e.Name(), to)
		default:
			size := "gone"
			if info, err := e.Info(); err == nil {
				size = fmt.Sprintf("%d bytes", info.Size())
			}
			fmt.Fprintf(&b, "%s (%s)\n", e.Name(), size)
		}
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}
