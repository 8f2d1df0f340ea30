//go:build linux

package containers

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/sidecar/outside"
)

// labelOf is the label of a sidecar: the id of the container whose network it leads.
const labelOf = "cove.sidecar_of"

// Sidecar is a container whose network is that of another one, by its standard streams.
type Sidecar struct {
	in     io.WriteCloser
	out    io.ReadCloser
	engine Engine
	name   string
	cmd    *exec.Cmd
	errs   bytes.Buffer // of the engine's program; read after its end
	once   sync.Once
}

// Sidecar starts one of a container, from an image of the program guest alone (package sidecar), and first removes what
// others have left. Errors: Unavailable.
func (e Engine) Sidecar(ctx context.Context, of Container, guest string) (*Sidecar, error) {
	if err := e.removeSidecars(ctx, of.ID); err != nil {
		return nil, err
	}
	image, err := e.guestImage(ctx, guest)
	if err != nil {
		return nil, err
	}
	s := &Sidecar{engine: e, name: "cove-sidecar-" + strings.ToLower(rand.Text())}
	args := []string{"run", "--rm", "--interactive", "--name", s.name, "--label", labelOf + "=" + of.ID,
		"--network", "container:" + of.ID, "--pull", "never", "--read-only", "--user", "0:0", "--ipc", "none",
		"--sysctl", "net.ipv6.conf.lo.disable_ipv6=0", "--security-opt", "no-new-privileges",
		"--memory", fmt.Sprint(outside.Memory), "--pids-limit", fmt.Sprint(outside.Tasks),
		"--ulimit", fmt.Sprintf("nofile=%d:%[1]d", outside.Files), "--log-driver", "none", "--env", outside.Heap,
		"--entrypoint", outside.Program, "--cap-drop", "ALL"}
	for _, capability := range outside.Capabilities {
		args = append(args, "--cap-add", capability)
	}
	s.cmd = exec.Command(e.program, append(args, image, outside.Flag)...)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a key of the terminal's is for this process
	s.cmd.Stderr = &s.errs
	if s.in, err = s.cmd.StdinPipe(); err == nil {
		s.out, err = s.cmd.StdoutPipe()
	}
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Sidecar) Read(p []byte) (int, error)  { return s.out.Read(p) }
func (s *Sidecar) Write(p []byte) (int, error) { return s.in.Write(p) }

// Close removes the sidecar.
func (s *Sidecar) Close() error {
	s.once.Do(func() {
		s.in.Close() // with its input it ends
		s.engine.ask(context.Background(), "rm", "--force", s.name)
		s.out.Close()
		s.cmd.Wait()
	})
	return nil
}

// Complaint returns what the engine said, after Close.
func (s *Sidecar) Complaint() string { return strings.TrimSpace(s.errs.String()) }

// removeSidecars removes the sidecars of a container that have ended.
func (e Engine) removeSidecars(ctx context.Context, id string) error {
	out, err := e.ask(ctx, "ps", "--all", "--quiet", "--filter", "label="+labelOf+"="+id,
		"--filter", "status=exited", "--filter", "status=created")
	if err != nil {
		return err
	}
	for _, old := range strings.Fields(string(out)) {
		if _, err := e.ask(ctx, "rm", "--force", old); err != nil && cove.ErrorCode(err) != cove.NotFound {
			return err
		}
	}
	return nil
}

// guestImage finds or makes the image of sidecars.
func (e Engine) guestImage(ctx context.Context, guest string) (string, error) {
	program, err := os.ReadFile(guest)
	if err != nil {
		return "", cove.Errorf(cove.NotFound, "cannot read the program of sidecars: %w", err).
			WithHint("install cove-guest beside cove")
	}
	tag := outside.ImageName(program)
	if _, err := e.ask(ctx, "image", "inspect", tag); err == nil {
		return tag, nil
	}
	return tag, e.give(ctx, outside.ImageFiles(program), "import", "-", tag)
}

// Put puts files into a directory of a container, by their names.
func (e Engine) Put(ctx context.Context, c Container, dir string, files map[string][]byte) error {
	dir = strings.TrimPrefix(filepath.Clean("/"+dir), "/")
	var archive bytes.Buffer
	tw := tar.NewWriter(&archive) // which writes to memory
	for name, data := range files {
		err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: dir + "/" + name, Mode: 0o644, Size: int64(len(data))})
		if err == nil {
			_, err = tw.Write(data)
		}
		if err != nil {
			return err
		}
	}
	if err := tw.Close(); err != nil {
		return err
	}
	return e.give(ctx, archive.Bytes(), "cp", "-", c.ID+":/")
}

// give runs the program with an archive as its input.
func (e Engine) give(ctx context.Context, archive []byte, args ...string) error {
	var errs bytes.Buffer
	c := exec.CommandContext(ctx, e.program, args...)
	c.Stdin, c.Stderr = bytes.NewReader(archive), &errs
	if err := c.Run(); err != nil {
		return cove.Errorf(cove.Unavailable, "%s does not take files: %w",
			e.program, fmt.Errorf("%.400s: %w", strings.TrimSpace(errs.String()), err)).
			WithHint("see that \"%s info\" works, and that the container is not read-only", e.program)
	}
	return nil
}
