package flags

import (
	"encoding/base64"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"unicode/utf8"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/image"
)

// maxCode is what the API takes as code, and maxFiles as files together; more
// is not even read.
const (
	maxCode  = 1 << 20
	maxFiles = 16 << 20
)

// readFiles reads what is placed beside the code. A relative path keeps its
// directories; any other file goes by its last name.
func readFiles(paths []string) ([]api.File, error) {
	var files []api.File
	total := 0
	for _, p := range paths {
		data, mode, err := ReadFile(p, maxFiles-total)
		if err != nil {
			return nil, err
		}
		total += len(data)
		name := filepath.Clean(p)
		if !filepath.IsLocal(name) {
			name = filepath.Base(name)
		}
		files = append(files, fileOf(filepath.ToSlash(name), data, mode))
	}
	return files, nil
}

// fileOf is a file as it is sent: text as it is, and anything else encoded.
func fileOf(path string, data []byte, mode fs.FileMode) api.File {
	f := api.File{Path: path, Content: string(data), Mode: uint32(mode.Perm())}
	if !utf8.Valid(data) {
		f.Content, f.Encoding = base64.StdEncoding.EncodeToString(data), "base64"
	}
	return f
}

// ReadFile reads a regular file of at most limit bytes.
func ReadFile(path string, limit int) ([]byte, fs.FileMode, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, fileError(path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, fileError(path, err)
	}
	if info.IsDir() {
		return nil, 0, cove.Errorf(cove.InvalidArgument, "%s is a directory", path).WithHint("attach it with --mount %s:/data:ro", path)
	}
	data, err := ReadLimited(f, path, limit)
	return data, info.Mode(), err
}

func ReadLimited(r io.Reader, name string, limit int) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err != nil {
		return nil, fileError(name, err)
	}
	if len(data) > limit {
		return nil, cove.Errorf(cove.TooLarge, "%s is larger than %s", name, ui.SizeText(int64(limit))).
			WithHint("attach large files with --mount")
	}
	return data, nil
}

func fileError(path string, err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return cove.Errorf(cove.InvalidArgument, "cannot read %s: %w", path, err)
}

// AbsoluteImage makes the path in an image string absolute: a server has
// another working directory.
func AbsoluteImage(s string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", cove.Errorf(cove.InvalidArgument, "this directory cannot be read: %w", err)
	}
	return image.Absolute(s, dir), nil
}
