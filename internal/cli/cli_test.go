package cli_test

import (
	"context"
	"flag"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cove-sandbox/cove/internal/cli"
	"github.com/cove-sandbox/cove/internal/cli/embedded"
)

var update = flag.Bool("update", false, "rewrite what the transcripts expect")

func TestMain(m *testing.M) {
	program := func(d cli.Daemon) func() {
		return func() {
			args := os.Args[1:]
			if helper, ok := cli.HelperArgs(os.Args[0], args); ok {
				args = helper
			}
			if d == nil {
				cli.HandOverAtOnce(args)
			}
			os.Exit(cli.Main(context.Background(), args, cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, d))
		}
	}
	if file, err := os.Executable(); err == nil && filepath.Base(file) == "cove-server" {
		os.Args[0] = file // which decides below, and is "cove" where cove-server takes its place
	}
	testscript.Main(m, map[string]func(){"cove": program(nil), "git-remote-cove": program(nil),
		"cove-server": program(embedded.Daemon{})})
}

// TestTranscripts runs testdata/*.txt, each a session at a shell. They talk to a server whose programs are a few words
// (fakeserver_test.go), so that they need neither root nor a sandbox.
func TestTranscripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		UpdateScripts:       *update,
		Setup: func(env *testscript.Env) error {
			// A unix socket's path is short: a directory of its own.
			dir, err := os.MkdirTemp("", "cove-cli-")
			if err != nil {
				return err
			}
			l, err := net.Listen("unix", filepath.Join(dir, "s"))
			if err != nil {
				return err
			}
			s := newFakeServer().serve(l)
			env.Defer(func() {
				s.Close()
				os.RemoveAll(dir)
			})
			env.Setenv("COVE_SERVER", "unix:"+filepath.Join(dir, "s"))
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("COVE_HOME", filepath.Join(dir, "home"))
			env.Setenv("COVE_RUN_DIR", filepath.Join(dir, "run"))
			env.Setenv("NO_COLOR", "1")
			env.Setenv("TZ", "UTC")
			if err := os.MkdirAll(filepath.Join(env.WorkDir, "link"), 0o755); err != nil {
				return err
			}
			if err := os.Symlink("nowhere", filepath.Join(env.WorkDir, "link", "l")); err != nil {
				return err
			}
			example, err := filepath.Abs("../../docs/cove.example.yaml")
			env.Setenv("EXAMPLE", example)
			return err
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"waitfor": waitFor,
		},
	})
}

// waitFor waits until a file has content: something in the background is up.
func waitFor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: waitfor FILE")
	}
	path := ts.MkAbs(args[0])
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		if info, err := os.Stat(path); err == nil && info.Size() > 0 {
			return
		}
		time.Sleep(10 * time.Millisecond) // sleep: a script has no testing.T for await
	}
	ts.Fatalf("%s stayed empty", args[0])
}
