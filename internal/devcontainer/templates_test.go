package devcontainer

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cove-sandbox/cove"
)

const goTemplate = `{"id": "go", "version": "1.0", "options": {"variant": {"type": "string", "default": "1.24",
	"enum": ["1.24", "1.25"]}, "word": {"type": "string", "default": "w"}}}`

func TestTemplate(t *testing.T) {
	files := Files{"src/go/" + templateName: []byte(goTemplate), "src/go/README.md": []byte("about"),
		"src/go/.devcontainer.json": []byte(`{"image": "go:${templateOption:variant}",
			"x": "${templateOption:word}${other}"}`)}
	all, err := Templates(files)
	if err != nil || len(all) != 1 || all[0].Dir != "src/go" {
		t.Fatalf("%+v, %v", all, err)
	}
	made, err := all[0].Apply(files, map[string]string{"variant": "1.25", "word": "${templateOption:variant}"})
	const want = `{"image": "go:1.25",
			"x": "${templateOption:variant}${other}"}`
	if err != nil || len(made) != 1 || string(made[".devcontainer.json"]) != want {
		t.Errorf("%q, %v", made, err)
	}
	for name, value := range map[string]string{"variant": "1.26", "none": ""} {
		if _, err := all[0].Apply(files, map[string]string{name: value}); cove.ErrorCode(err) != cove.InvalidArgument {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
	files["src/go/.git/hooks/post-checkout"] = []byte("#!/bin/sh\n")
	if _, err := all[0].Apply(files, nil); cove.ErrorCode(err) != cove.InvalidArgument {
		t.Errorf("with a hook of git: %v", err)
	}
}

// layoutOf returns an OCI layout with an archive of entries, each a name with its type.
func layoutOf(t *testing.T, zip bool, entries ...tar.Header) fstest.MapFS {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, h := range entries {
		body := []byte(goTemplate)
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(body))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			w.Write(body)
		}
	}
	w.Close()
	data := archive.Bytes()
	if zip {
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		z.Write(data)
		z.Close()
		data = packed.Bytes()
	}
	layout := fstest.MapFS{}
	put := func(data []byte) string {
		sum := sha256.Sum256(data)
		layout["blobs/sha256/"+hex.EncodeToString(sum[:])] = &fstest.MapFile{Data: data}
		return "sha256:" + hex.EncodeToString(sum[:])
	}
	manifest := put(fmt.Appendf(nil, `{"layers": [{"digest": %q}]}`, put(data)))
	layout["index.json"] = &fstest.MapFile{Data: fmt.Appendf(nil,
		`{"manifests": [{"digest": %q, "annotations": {"org.opencontainers.image.ref.name": "1"}}]}`, manifest)}
	return layout
}

// TestReadLayout reads an artifact, if its blobs are what they say and its archive has files alone.
func TestReadLayout(t *testing.T) {
	reg := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644} }
	dir := tar.Header{Name: "./", Typeflag: tar.TypeDir, Mode: 0o755}
	for _, zip := range []bool{false, true} {
		for _, tag := range []string{"", "1"} {
			files, err := ReadLayout(layoutOf(t, zip, dir, reg("./"+templateName)), tag)
			if err != nil || string(files[templateName]) != goTemplate {
				t.Errorf("%v, %q: %q, %v", zip, tag, files, err)
			}
		}
	}
	for name, c := range map[string]struct {
		layout fstest.MapFS
		tag    string
		code   cove.Code
	}{
		"no layout":   {fstest.MapFS{}, "", cove.InvalidArgument},
		"another tag": {layoutOf(t, false, reg("a")), "2", cove.NotFound},
		"up":          {layoutOf(t, false, reg("../a")), "", cove.InvalidArgument},
		"absolute":    {layoutOf(t, false, reg("/a")), "", cove.InvalidArgument},
		"a link": {layoutOf(t, false, tar.Header{Name: "a", Linkname: "/etc/passwd", Typeflag: tar.TypeSymlink}), "",
			cove.InvalidArgument},
		"other content": {layoutOf(t, true, reg("a")), "", cove.Corrupt},
	} {
		if name == "other content" { // a blob is not what its digest says
			for path, f := range c.layout {
				if strings.HasPrefix(path, "blobs/") {
					f.Data = append(f.Data, ' ')
				}
			}
		}
		if _, err := ReadLayout(c.layout, c.tag); cove.ErrorCode(err) != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
}
