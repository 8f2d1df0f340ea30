//go:build linux

package native

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/enginetest"
	"github.com/cove-sandbox/cove/internal/engine/local"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/instance"
)

// lastingTemplate is a long-lived sandbox of the host's own toolchain.
func lastingTemplate() engine.Template {
	return engine.Template{
		ID: cove.NewSandboxID(), Shape: cove.Shape{Limits: limits, User: cove.CodeUser, Lifetime: cove.LifetimeDetached},
		Rootfs: engine.Rootfs{Kind: engine.RootfsHost}, Network: cove.NetworkNone,
	}
}

// TestLastingSwept: a sweep removes a detached sandbox that ended while no process managed it.
func TestLastingSwept(t *testing.T) {
	needRoot(t)
	e := open(t)
	sb, err := e.Prepare(t.Context(), lastingTemplate())
	if err != nil {
		t.Fatal(err)
	}
	if err := sb.Bind(t.Context(), engine.Binding{}); err != nil {
		t.Fatal(err)
	}
	group := sb.(*sandbox).group
	e.Close()
	next := openIn(t, e.o.RunDir)
	if swept, err := next.Sweep(t.Context()); err != nil || swept.Sandboxes > 0 {
		t.Fatalf("one that runs: swept %+v, %v", swept, err)
	}
	if err := group.Kill(); err != nil {
		t.Fatal(err)
	}
	<-sb.Done()
	swept, err := next.Sweep(t.Context())
	if err != nil || swept.Sandboxes != 1 || len(swept.Items) != 2 {
		t.Errorf("swept %+v, %v", swept, err)
	}
	if left, err := os.ReadDir(filepath.Join(e.o.RunDir, local.Dir, engineName)); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// TestLastingSurvivesKill: the process of Cove that made a long-lived sandbox is
// killed; the next one finds it as it was.
func TestLastingSurvivesKill(t *testing.T) {
	needRoot(t)
	run := t.TempDir()
	passable(run)
	maker := exec.Command(os.Args[0], "-test.run=^TestMakeLasting$")
	maker.Env = append(os.Environ(), "COVE_TEST_MAKE_LASTING="+run, "COVE_TEST_GUEST="+enginetest.BuildGuest(t),
		"COVE_TEST_GROUP="+groupParent)
	maker.Stderr = os.Stderr
	out, err := maker.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := maker.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	id := cove.SandboxID(strings.TrimSpace(line))
	maker.Process.Signal(syscall.SIGKILL)
	maker.Wait()

	e := openIn(t, run)
	if swept, err := e.Sweep(t.Context()); err != nil || swept.Sandboxes > 2 { // the two that were ready
		t.Fatalf("swept %+v, %v", swept, err)
	}
	if left, err := e.Left(t.Context()); err != nil || !slices.Equal(left, []cove.SandboxID{id}) {
		t.Fatalf("left %v, %v; want %s", left, err, id)
	}
	other := openIn(t, run)
	other.o.CgroupParent = "another"
	if _, err := other.Adopt(t.Context(), id); cove.ErrorCode(err) != cove.Conflict {
		t.Errorf("adopting with another parent of groups: %v", err)
	}
	sb, err := e.Adopt(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := sb.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	data, err := sb.Guest().ReadFile(t.Context(), "/tmp/kept", 100)
	if err != nil || string(data) != "kept" {
		t.Errorf("its file: %q, %v", data, err)
	}
	p, err := sb.Guest().Attach(t.Context(), sb.Guest().Processes()[0], 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	p.Stdin().Close()
	text, err := io.ReadAll(p.Stdout())
	if err != nil || string(text) != "begun\nended\n" {
		t.Errorf("its process: %q, %v", text, err)
	}
}

// TestMakeLasting is the process that TestLastingSurvivesKill kills.
func TestMakeLasting(t *testing.T) {
	run := os.Getenv("COVE_TEST_MAKE_LASTING")
	if run == "" {
		t.Skip("a part of TestLastingSurvivesKill")
	}
	in, err := instance.Hold(run)
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(Options{Guest: os.Getenv("COVE_TEST_GUEST"), RunDir: run, Instance: in.ID,
		CgroupParent: os.Getenv("COVE_TEST_GROUP"), Log: slog.Default(), Ready: 2})
	if err != nil {
		t.Fatal(err)
	}
	sb, err := e.Prepare(t.Context(), lastingTemplate())
	if err != nil {
		t.Fatal(err)
	}
	if err := sb.Bind(t.Context(), engine.Binding{}); err != nil {
		t.Fatal(err)
	}
	if err := sb.Guest().WriteFile(t.Context(), "/tmp/kept", 0o600, []byte("kept")); err != nil {
		t.Fatal(err)
	}
	if _, err := sb.Guest().Start(t.Context(), guest.ProcessSpec{
		Args: []string{"sh", "-c", "echo begun; cat; echo ended"}, Env: []string{"PATH=/usr/bin:/bin"},
		Dir: "/tmp", Stdin: true,
	}); err != nil {
		t.Fatal(err)
	}
	os.Stdout.WriteString(string(sb.ID()) + "\n")
	select {} // until it is killed
}
