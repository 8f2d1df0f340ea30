// Command dist makes what is released: for each architecture an archive and a Debian package with the programs, manual
// pages, completion of shells and the service; for macOS and Windows an archive with cove as a client; a bill of
// materials of each; install.sh; and the checksums of all. The
// same commit gives the same bytes on every machine with the same Go: nothing in them depends on when, where and by
// whom they were made.
//
//	dist [-out DIR] [-arch amd64,arm64] [-clients darwin,windows] [-version V] [-epoch SECONDS]
//
// It runs below the repository, whose commit gives the version and the time where they are not given.
package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

// release is what all packages of one version share.
type release struct {
	source  string    // top directory of the repository
	version string    // as git describes it, without "v"
	epoch   time.Time // of every file
	pages   []file    // for all architectures
}

func run() error {
	out := flag.String("out", "dist", "`DIR` that everything is written to; it is made anew")
	arches := flag.String("arch", "amd64,arm64", "`LIST` of architectures")
	clients := flag.String("clients", "darwin,windows", "`LIST` of systems, besides Linux, that get a client")
	version := flag.String("version", "", "`VERSION` in place of what git describes")
	epoch := flag.Int64("epoch", 0, "`SECONDS` since 1970 in place of the commit's time (or SOURCE_DATE_EPOCH)")
	flag.Parse()
	r, err := newRelease(*version, *epoch)
	if err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(*out), os.MkdirAll(*out, 0o755)); err != nil {
		return err
	}
	dir, err := filepath.Abs(*out)
	if err != nil {
		return err
	}
	for arch := range strings.SplitSeq(*arches, ",") {
		if err := r.make(dir, arch); err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
		for system := range strings.FieldsFuncSeq(*clients, func(c rune) bool { return c == ',' }) {
			if err := r.client(dir, system, arch); err != nil {
				return fmt.Errorf("%s/%s: %w", system, arch, err)
			}
		}
	}
	script, err := os.ReadFile(filepath.Join(r.source, "packaging", "install.sh"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "install.sh"), script, 0o755); err != nil {
		return err
	}
	return writeSums(dir)
}

func newRelease(version string, epoch int64) (*release, error) {
	top, err := output("git", "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	r := &release{source: top, version: version}
	if r.version == "" {
		if r.version, err = output("git", "-C", top, "describe", "--tags", "--always", "--dirty"); err != nil {
			return nil, err
		}
	}
	r.version = strings.TrimPrefix(r.version, "v")
	text := os.Getenv("SOURCE_DATE_EPOCH")
	switch {
	case epoch != 0:
		text = strconv.FormatInt(epoch, 10)
	case text == "":
		if text, err = output("git", "-C", top, "log", "-1", "--format=%ct"); err != nil {
			return nil, err
		}
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("the time %q is no number of seconds", text)
	}
	r.epoch = time.Unix(seconds, 0).UTC()
	r.pages, err = pages(r.version, r.epoch)
	return r, err
}

// make writes an architecture's archive, package and bill of materials.
func (r *release) make(out, arch string) error {
	work, err := os.MkdirTemp("", "cove-dist-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	programs, err := r.build(work, "linux", arch, programs)
	if err != nil {
		return err
	}
	tree, err := r.tree(programs)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("cove_%s_linux_%s", r.version, arch)
	return errors.Join(
		r.archive(filepath.Join(out, name+".tar.gz"), name, tree),
		r.debian(filepath.Join(out, name+".deb"), arch, tree),
		r.materials(filepath.Join(out, name+".cdx.json"), programs),
	)
}

// client writes the archive of a system on which cove is a client only, and its bill of materials.
func (r *release) client(out, system, arch string) error {
	work, err := os.MkdirTemp("", "cove-dist-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	programs, err := r.build(work, system, arch, []string{"cove"})
	if err != nil {
		return err
	}
	tree, err := r.clientTree(system, programs[0])
	if err != nil {
		return err
	}
	name := fmt.Sprintf("cove_%s_%s_%s", r.version, system, arch)
	write, ext := r.archive, ".tar.gz"
	if system == "windows" {
		write, ext = r.zip, ".zip"
	}
	return errors.Join(
		write(filepath.Join(out, name+ext), name, tree),
		r.materials(filepath.Join(out, name+".cdx.json"), programs),
	)
}

// programs of a release, in the order of the archive.
var programs = []string{"cove", "cove-server", "cove-guest", "cove-worker"}

// build compiles programs into dir and returns their paths.
func (r *release) build(dir, system, arch string, programs []string) ([]string, error) {
	args := []string{"build", "-trimpath", "-buildvcs=false", "-o", dir + "/",
		"-ldflags", "-s -w -buildid= -X github.com/cove-sandbox/cove/internal/version.Version=" + r.version}
	var paths []string
	for _, p := range programs {
		args = append(args, "./cmd/"+p)
		if system == "windows" {
			p += ".exe"
		}
		paths = append(paths, filepath.Join(dir, p))
	}
	build := exec.Command("go", args...)
	build.Dir = r.source
	build.Env = append(
		os.Environ(),
		"GOOS="+system,
		"GOARCH="+arch,
		"CGO_ENABLED=0",
		"GOFLAGS=",
		"GOAMD64=v1",
		"GOARM64=v8.0",
	)
	build.Stderr = os.Stderr
	return paths, build.Run()
}

// output runs a program and returns its one line.
func output(name string, args ...string) (string, error) {
	c := exec.Command(name, args...)
	c.Stderr = os.Stderr
	out, err := c.Output()
	return strings.TrimSpace(string(out)), err
}

// writeSums writes SHA256SUMS of the other files in dir, as sha256sum reads it.
func writeSums(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	var sums bytes.Buffer
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), e.Name())
	}
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), sums.Bytes(), 0o644)
}
