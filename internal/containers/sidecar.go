package containers

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/cove-sandbox/cove"
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
	s.cmd = exec.Command(e.program, "run", "--rm", "--interactive", "--name", s.name, "--label", labelOf+"="+of.ID,
		"--network", "container:"+of.ID, "--pull", "never", "--read-only", "--user", "0:0", "--ipc", "none",
		"--sysctl", "net.ipv6.conf.lo.disable_ipv6=0",
		"--cap-drop", "ALL", "--cap-add", "NET_ADMIN", "--cap-add", "NET_BIND_SERVICE", "--cap-add", "SETUID",
		"--cap-add", "SETGID", "--security-opt", "no-new-privileges", "--memory", "192m", "--pids-limit", "64",
		"--ulimit", "nofile=1024:1024", "--log-driver", "none", "--env", "GOMEMLIMIT=128MiB",
		"--entrypoint", "/cove-guest", image, "--sidecar")
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
	sum := sha256.Sum256(program)
	tag := "cove/guest:" + hex.EncodeToString(sum[:16])
	if _, err := e.ask(ctx, "image", "inspect", tag); err == nil {
		return tag, nil
	}
	return tag, e.give(ctx, []file{{"cove-guest", 0o755, program}}, "import", "-", tag)
}

// Put puts files into a directory of a container, by their names.
func (e Engine) Put(ctx context.Context, c Container, dir string, files map[string][]byte) error {
	dir = strings.TrimPrefix(filepath.Clean("/"+dir), "/")
	var all []file
	for name, data := range files {
		all = append(all, file{dir + "/" + name, 0o644, data})
	}
	return e.give(ctx, all, "cp", "-", c.ID+":/")
}

type file struct {
	name string
	mode int64
	data []byte
}

// give runs the program with an archive as its input.
func (e Engine) give(ctx context.Context, files []file, args ...string) error {
	var archive, errs bytes.Buffer
	tw := tar.NewWriter(&archive)
	for _, f := range files {
		err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.data))})
		if err == nil {
			_, err = tw.Write(f.data)
		}
		if err != nil {
			return err
		}
	}
	c := exec.CommandContext(ctx, e.program, args...)
	c.Stdin, c.Stderr = &archive, &errs
	if err := errors.Join(tw.Close(), c.Run()); err != nil {
		return cove.Errorf(cove.Unavailable, "%s does not take files: %w",
			e.program, fmt.Errorf("%.400s: %w", strings.TrimSpace(errs.String()), err)).
			WithHint("see that \"%s info\" works, and that the container is not read-only", e.program)
	}
	return nil
}
