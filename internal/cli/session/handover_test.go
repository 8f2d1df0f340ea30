package session

import (
	"os"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/config"
)

// TestNeedsDaemon: a command goes to the program with the daemon at once where no server can do it, and else reads its
// own command line.
func TestNeedsDaemon(t *testing.T) {
	socket := "/r/cove.sock"
	for _, c := range []struct {
		line, env string
		socket    string // that is there
		want      bool
	}{
		{line: "run bash -c true", want: true},
		{line: "run bash -c true", socket: socket},
		{line: "run bash -c true", socket: "/other/cove.sock", want: true},
		{line: "run bash -c true --memory 1G", want: true},
		{line: "run bash -c true", env: "COVE_SERVER=unix:/x"},
		{line: "run bash -c true", env: "COVE_CONFIG=/c.yaml"},
		{line: "run bash -c true", env: "CONFIG_PATH=/c.yaml"},
		{line: "run --server http://host bash -c true"},
		{line: "run --server=http://host bash -c true"},
		{line: "run --config c.yaml bash -c true"},
		{line: "run --run-dir /x bash -c true"},
		{line: "run --set run_dir=/x bash -c true"},
		{line: "run --help"},
		{line: "run -h"},
		{line: "doctor", socket: socket, want: true},
		{line: "serve --listen :1", socket: socket, want: true},
		{line: "image list", socket: socket, want: true},
		{line: "image --help"},
		{line: "image list", env: callerVariable + "=1.2.3"}, // it would go round in circles
		{line: "run bash -c true", env: callerVariable + "=1.2.3"},
		{line: ""}, {line: "version"}, {line: "ps"}, {line: "new ."}, {line: "--home /h run bash -c true"},
		{line: "nothing"}, {line: "gateway list"},
	} {
		getenv := func(name string) string {
			set, value, _ := strings.Cut(c.env, "=")
			switch name {
			case set:
				return value
			case "COVE_RUN_DIR":
				return "/r"
			}
			return ""
		}
		got := needsDaemon(strings.Fields(c.line), getenv, func(path string) bool { return path == c.socket })
		if got != c.want {
			t.Errorf("cove %s, %s, with %q: %v", c.line, c.env, c.socket, got)
		}
	}
	var asked string
	t.Setenv("COVE_SERVER", "")
	t.Setenv("COVE_RUN_DIR", t.TempDir())
	needsDaemon([]string{"run"}, os.Getenv, func(path string) bool { asked = path; return true })
	cfg, err := config.Load(config.Source{Getenv: os.Getenv, Environ: os.Environ(), UID: os.Geteuid()})
	if err != nil || asked != cfg.Socket() {
		t.Errorf("it looked for %s: %v", asked, err)
	}
}
