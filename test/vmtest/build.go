package vmtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repository is the root of this module's source.
func repository(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatalf("find the repository: %v", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out)))
}

// prepareImage makes kernel and root file system, or finds them made.
func prepareImage(t *testing.T, repo string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(repo, "scripts", "vm-image.sh"))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("scripts/vm-image.sh: %v\n%s", err, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

// makePayload builds what config names into a disk image.
func makePayload(repo, dir string, config Config) (string, error) {
	tree := filepath.Join(dir, "payload")
	if err := os.MkdirAll(filepath.Join(tree, "bin"), 0o755); err != nil {
		return "", err
	}
	for _, pkg := range config.Packages {
		if err := addPackage(repo, tree, pkg); err != nil {
			return "", err
		}
	}
	for _, pkg := range config.Programs {
		if err := goBuild(repo, "build", filepath.Join(tree, "bin", filepath.Base(pkg)), pkg); err != nil {
			return "", err
		}
	}
	size, err := treeSize(tree)
	if err != nil {
		return "", err
	}
	image := filepath.Join(dir, "payload.ext4")
	const slack = 32 << 20 // inodes, directories, block ends
	out, err := exec.Command("/usr/sbin/mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-E", "root_owner=0:0",
		"-d", tree, image, fmt.Sprintf("%dK", (size+size/8+slack)/1024)).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("mke2fs: %w: %s", err, out)
	}
	return image, nil
}

func addPackage(repo, tree, pkg string) error {
	binary := testBinary(tree, pkg)
	if err := os.MkdirAll(filepath.Dir(binary), 0o755); err != nil {
		return err
	}
	if err := goBuild(repo, "test", binary, pkg, "-c"); err != nil {
		return err
	}
	if _, err := os.Stat(binary); err != nil {
		return fmt.Errorf("%s has no tests", pkg)
	}
	testdata := filepath.Join(repo, pkg, "testdata")
	if _, err := os.Stat(testdata); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return os.CopyFS(filepath.Join(tree, pkg, "testdata"), os.DirFS(testdata))
}

// testBinary is where a package's test binary is under root.
func testBinary(root, pkg string) string {
	return filepath.Join(root, pkg, filepath.Base(pkg)+".test")
}

func goBuild(repo, verb, output, pkg string, flags ...string) error {
	args := append([]string{verb}, flags...)
	args = append(args, "-ldflags=-s -w", "-o", output, "./"+pkg)
	cmd := exec.Command("go", args...)
	cmd.Dir = repo
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return nil
}

func treeSize(root string) (int64, error) {
	var size int64
	err := filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	})
	return size, err
}

// makeInitramfs writes the archive the kernel starts from: the init and the modules that find the root disk.
func makeInitramfs(repo, image, dir, path string) error {
	init := filepath.Join(dir, "init")
	if err := goBuild(repo, "build", init, "test/vmtest/vminit"); err != nil {
		return err
	}
	modules, err := filepath.Glob(filepath.Join(image, "modules", "*.ko"))
	if err != nil {
		return err
	}
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer out.Close()
	archive := cpioWriter{w: out}
	archive.add("init", 0o100755, init)
	for _, name := range []string{"dev", "proc", "sys", "new", "modules"} {
		archive.add(name, 0o040755, "")
	}
	for _, module := range modules {
		archive.add("modules/"+filepath.Base(module), 0o100644, module)
	}
	return errors.Join(archive.close(), out.Close())
}

// cpioWriter writes an archive of the "newc" kind
// (Documentation/driver-api/early-userspace/buffer-format.rst of the kernel).
type cpioWriter struct {
	w     io.Writer
	inode int
	err   error
}

// add adds the content of the file at source, or nothing, as name.
func (c *cpioWriter) add(name string, mode int, source string) {
	var content []byte
	if c.err == nil && source != "" {
		content, c.err = os.ReadFile(source)
	}
	if c.err != nil {
		return
	}
	c.inode++
	header := fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		c.inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0)
	c.pad([]byte(header + name + "\x00"))
	c.pad(content)
}

func (c *cpioWriter) pad(data []byte) {
	if c.err != nil {
		return
	}
	padded := append(data, make([]byte, -len(data)&3)...)
	_, c.err = c.w.Write(padded)
}

func (c *cpioWriter) close() error {
	c.add("TRAILER!!!", 0, "")
	return c.err
}
