package embedded

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/cove-sandbox/cove/internal/cli/server"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// TestServeBoundsItsMemory: a server has told the runtime how much memory it may have before it opens anything.
func TestServeBoundsItsMemory(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "")
	was := debug.SetMemoryLimit(math.MaxInt64)
	defer debug.SetMemoryLimit(was)
	nothing, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer nothing.Close()
	sess := session.New(ui.Streams{In: nothing, Out: nothing, Err: nothing}, func(string) string { return "" })
	sess.Settings.RunDir = t.TempDir()
	sess.Settings.Home = filepath.Join(os.DevNull, "home") // which cannot be, so that it ends there
	if err := (Daemon{}).Serve(context.Background(), sess, server.ServeOptions{}); err == nil {
		t.Error("it has served")
	}
	if debug.SetMemoryLimit(-1) == math.MaxInt64 {
		t.Error("its memory has no limit")
	}
}
