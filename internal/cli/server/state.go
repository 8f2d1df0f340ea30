package server

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/version"
)

// serverState is the output of "cove server status --json".
type serverState struct {
	Running    bool       `json:"running"`
	PID        int        `json:"pid,omitempty"`
	Version    string     `json:"version,omitempty"`
	Command    string     `json:"command_version"` // of this program
	Since      *time.Time `json:"since,omitempty"`
	Status     string     `json:"status,omitempty"`
	Addresses  []string   `json:"addresses,omitempty"`
	Sandboxes  int        `json:"sandboxes"`
	Executions int        `json:"executions"`
	Queued     int        `json:"queued"`
	Log        string     `json:"log,omitempty"`
}

// findServer looks for the server that commands would talk to.
func findServer(ctx context.Context, sess *session.Session) (serverState, error) {
	s := serverState{Command: version.Version}
	address := sess.ServerAddress()
	if address == "" {
		cfg, err := sess.Config()
		if err != nil {
			return s, err
		}
		s.Log, address = session.ServerLogPath(cfg), "unix:"+cfg.Socket()
		if _, err := os.Stat(s.Log); err != nil {
			s.Log = "" // it never was in the background
		}
		if !session.Answers(ctx, cfg.Socket()) {
			return s, nil
		}
	}
	b, err := sess.Dial(address)
	if err != nil {
		return s, err
	}
	defer b.Close()
	h, err := b.Client.Health(ctx)
	if err != nil {
		return s, err
	}
	s.Running, s.PID, s.Version, s.Since, s.Status = true, h.PID, h.Version, h.Since, h.Status
	s.Addresses = append([]string{address}, h.Listens...)
	s.Executions, s.Queued = h.Active, h.Queued
	s.Sandboxes, err = countSandboxes(ctx, b.Client)
	return s, err
}

// text is the state for people.
func (s serverState) text() string {
	if !s.Running {
		return "no server answers; commands that need one start it\n"
	}
	rows := [][2]string{{"running", "process " + strconv.Itoa(s.PID)}, {"version", s.Version}}
	if s.Version != s.Command {
		rows[1][1] += " (this command: " + s.Command + ")"
	}
	if s.Since != nil {
		rows = append(rows,
			[2]string{"since", s.Since.Local().Format(time.DateTime) + " (" + ui.Ago(time.Since(*s.Since)) + ")"})
	}
	if s.Status != "ok" {
		rows = append(rows, [2]string{"status", s.Status + ": \"cove doctor\" says why"})
	}
	rows = append(rows, [2]string{"address", strings.Join(s.Addresses, ", ")},
		[2]string{"sandboxes", strconv.Itoa(s.Sandboxes)},
		[2]string{"executions", strconv.Itoa(s.Executions)})
	if s.Log != "" {
		rows = append(rows, [2]string{"log", s.Log})
	}
	return ui.Facts(rows)
}

// elsewhere refuses what needs a server that this command line looks after.
func elsewhere(what string) error {
	return cove.Errorf(cove.InvalidArgument,
		"a server that is named with --server or COVE_SERVER is not %s by this command", what).
		WithHint("leave the name out, for the server of this machine")
}

// sandboxesOf counts those of a server; one that cannot say has none.
func sandboxesOf(ctx context.Context, sess *session.Session, socket string) (int, error) {
	b, err := sess.Dial("unix:" + socket)
	if err != nil {
		return 0, err
	}
	defer b.Close()
	return countSandboxes(ctx, b.Client)
}

// countSandboxes counts those of a server; an older one has none.
func countSandboxes(ctx context.Context, c *client.Client) (int, error) {
	l, err := c.Sandboxes(ctx)
	if code := cove.ErrorCode(err); code == cove.NotFound || code == cove.Unsupported {
		return 0, nil
	}
	return len(l.Sandboxes), err
}
