package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/version"
)

func (a *app) serverCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "server",
		Short: "See and stop the server in the background",
		Long: `Sandboxes that last belong to a server. When none answers, the commands that
need one start it in the background: "cove serve" in a session of its own, which
listens on its unix socket only unless the configuration says where else. Its
log is logs/server.log in --home.

Sandboxes outlive it: what runs in them goes on, and the next server takes them
over.`,
		Example: "  cove server status\n  cove server logs -f\n  cove server stop",
	}, a.serverStatus(), a.serverStart(), a.serverStop(), a.serverLogs())
}

// serverState is what "cove server status --json" prints.
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

func (a *app) serverStatus() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use:     "status",
		Short:   "Say whether a server answers, and what it does",
		Long:    "Say whether a server answers, and what it does. The exit code is 0 when one does, and 3 when none does.",
		Example: "  cove server status\n  cove server status --json",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.findServer(cmd.Context())
			if err != nil {
				return err
			}
			if !s.Running {
				a.exit = exitNoServer
			}
			return a.showServer(s, asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// findServer looks for the server that commands would talk to.
func (a *app) findServer(ctx context.Context) (serverState, error) {
	s := serverState{Command: version.Version}
	address := a.serverAddress()
	if address == "" {
		cfg, err := a.loadConfig()
		if err != nil {
			return s, err
		}
		s.Log, address = serverLogPath(cfg), "unix:"+cfg.Socket()
		if _, err := os.Stat(s.Log); err != nil {
			s.Log = "" // it never was in the background
		}
		if !answers(ctx, cfg.Socket()) {
			return s, nil
		}
	}
	b, err := a.remote(address)
	if err != nil {
		return s, err
	}
	defer b.close()
	h, err := b.client.Health(ctx)
	if err != nil {
		return s, err
	}
	s.Running, s.PID, s.Version, s.Since, s.Status = true, h.PID, h.Version, h.Since, h.Status
	s.Addresses = append([]string{address}, h.Listens...)
	s.Executions, s.Queued = h.Active, h.Queued
	s.Sandboxes, err = countSandboxes(ctx, b.client)
	return s, err
}

func (a *app) showServer(s serverState, asJSON bool) error {
	if asJSON {
		return a.printJSON(s)
	}
	if !s.Running {
		return a.print("no server answers; commands that need one start it\n")
	}
	rows := [][2]string{{"running", "process " + strconv.Itoa(s.PID)}, {"version", s.Version}}
	if s.Version != s.Command {
		rows[1][1] += " (this command: " + s.Command + ")"
	}
	if s.Since != nil {
		rows = append(rows, [2]string{"since", s.Since.Local().Format(time.DateTime) + " (" + ago(time.Since(*s.Since)) + ")"})
	}
	if s.Status != "ok" {
		rows = append(rows, [2]string{"status", s.Status + ": \"cove doctor\" says why"})
	}
	rows = append(rows, [2]string{"address", strings.Join(s.Addresses, ", ")}, [2]string{"sandboxes", strconv.Itoa(s.Sandboxes)},
		[2]string{"executions", strconv.Itoa(s.Executions)})
	if s.Log != "" {
		rows = append(rows, [2]string{"log", s.Log})
	}
	return a.print(facts(rows))
}

// checkVersion says when a server is of another version than this command.
func (a *app) checkVersion(h api.Health) {
	switch {
	case h.Version == "" || h.Version == version.Version:
	case a.serverAddress() != "":
		a.say.line("the server is of version %s, this command of %s", h.Version, version.Version)
	default:
		a.say.line("the server is of version %s, this command of %s: \"cove server stop\" ends it, and the next command starts one of its own; sandboxes stay", h.Version, version.Version)
	}
}

func (a *app) serverStart() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use:     "start",
		Short:   "Start a server in the background, if none answers",
		Example: "  cove server start",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			interrupts := watchSignals()
			defer interrupts.stop()
			ctx, cancel := interrupts.cover(cmd.Context())
			defer cancel()
			if a.serverAddress() != "" {
				return elsewhere("started")
			}
			cfg, err := a.loadConfig()
			if err != nil {
				return err
			}
			if !answers(ctx, cfg.Socket()) {
				if err := a.startServer(ctx, cfg); err != nil {
					return interrupts.explain(err)
				}
			}
			s, err := a.findServer(ctx)
			if err != nil {
				return err
			}
			return a.showServer(s, asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// elsewhere refuses what needs a server that this command line looks after.
func elsewhere(what string) error {
	return cove.Errorf(cove.InvalidArgument, "a server that is named with --server or COVE_SERVER is not %s by this command", what).
		WithHint("leave the name out, for the server of this machine")
}

func (a *app) serverStop() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use:   "stop",
		Short: "Stop the server of this machine",
		Long: `Stop the server of this machine. Executions end within shutdown_grace.
Sandboxes stay as they are: what runs in them goes on, and the next server takes
them over. While there is none, nothing leaves them.`,
		Example: "  cove server stop",
		Args:    exactly(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.stopServer(cmd.Context(), asJSON) },
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

func (a *app) stopServer(ctx context.Context, asJSON bool) error {
	interrupts := watchSignals()
	defer interrupts.stop()
	ctx, cancel := interrupts.cover(ctx)
	defer cancel()
	if a.serverAddress() != "" {
		return elsewhere("stopped")
	}
	cfg, err := a.loadConfig()
	if err != nil {
		return err
	}
	var result struct {
		Stopped   bool `json:"stopped"`
		PID       int  `json:"pid,omitempty"`
		Sandboxes int  `json:"sandboxes"`
	}
	p, pid, err := listener(cfg.Socket())
	if err != nil {
		return err
	}
	if pid != 0 {
		defer p.Close()
		if result.Sandboxes, err = a.sandboxesOf(ctx, cfg.Socket()); err != nil {
			return err
		}
		if err := p.terminate(); err != nil {
			return err
		}
		p.wait(ctx)
		if ctx.Err() != nil {
			return interrupts.explain(cove.Errorf(cove.Canceled, "the server is told to stop, and has not ended yet"))
		}
		result.Stopped, result.PID = true, pid
	}
	switch {
	case asJSON:
		return a.printJSON(result)
	case !result.Stopped:
		return a.print("no server answers\n")
	case result.Sandboxes == 0:
		return a.print("the server has stopped\n")
	case result.Sandboxes == 1:
		return a.print("the server has stopped; 1 sandbox stays, and the next server takes it over\n")
	}
	return a.print("the server has stopped; " + strconv.Itoa(result.Sandboxes) + " sandboxes stay, and the next server takes them over\n")
}

// sandboxesOf counts those of a server; one that cannot say has none.
func (a *app) sandboxesOf(ctx context.Context, socket string) (int, error) {
	b, err := a.remote("unix:" + socket)
	if err != nil {
		return 0, err
	}
	defer b.close()
	return countSandboxes(ctx, b.client)
}

// countSandboxes counts those of a server; an older one has none.
func countSandboxes(ctx context.Context, c *client.Client) (int, error) {
	l, err := c.Sandboxes(ctx)
	if code := cove.ErrorCode(err); code == cove.NotFound || code == cove.Unsupported {
		return 0, nil
	}
	return len(l.Sandboxes), err
}

func (a *app) serverLogs() *cobra.Command {
	follow, lines := false, 0
	c := &cobra.Command{
		Use:     "logs",
		Short:   "Print the log of the server in the background",
		Example: "  cove server logs -n 20\n  cove server logs -f",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if lines < 0 {
				return usageError(cmd, "--lines %d: it must not be negative", lines)
			}
			interrupts := watchSignals(a.Out)
			defer interrupts.stop()
			ctx, cancel := interrupts.cover(cmd.Context())
			defer cancel()
			cfg, err := a.loadConfig()
			if err != nil {
				return err
			}
			if err := a.printLog(ctx, serverLogPath(cfg), lines, follow); err != nil {
				return err
			}
			return interrupts.explain(ended(ctx, follow))
		},
	}
	c.Flags().IntVarP(&lines, "lines", "n", 100, "the last `COUNT` lines")
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on as it grows")
	return c
}

func ended(ctx context.Context, follow bool) error {
	if follow && ctx.Err() != nil {
		return cove.Errorf(cove.Canceled, "it was ended")
	}
	return nil
}

// logPoll is how often a log that is followed is looked at.
const logPoll = 200 * time.Millisecond

// printLog prints the last lines of a log, and with follow what comes, also
// when the log begins anew. What is in it came through slog, which quotes.
func (a *app) printLog(ctx context.Context, path string, lines int, follow bool) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return cove.Errorf(cove.NotFound, "there is no log at %s", path).WithHint("a server in the background has one; \"cove serve\" prints it")
	}
	if err != nil {
		return err
	}
	defer func() { f.Close() }()
	data, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	if err := a.print(string(lastLines(data, lines))); err != nil || !follow {
		return err
	}
	for {
		select {
		case <-time.After(logPoll):
		case <-ctx.Done():
			return nil
		}
		if _, err := io.Copy(a.Out, f); err != nil {
			return err
		}
		now, err := os.Open(path)
		if err != nil {
			continue // it is being replaced
		}
		if same(f, now) {
			now.Close()
			continue
		}
		if _, err := io.Copy(a.Out, f); err != nil { // what came last
			now.Close()
			return err
		}
		f.Close()
		f = now
	}
}

func same(a, b *os.File) bool {
	ia, err := a.Stat()
	if err != nil {
		return false
	}
	ib, err := b.Stat()
	return err == nil && os.SameFile(ia, ib)
}

// lastLines are the last n lines of data.
func lastLines(data []byte, n int) []byte {
	end := len(bytes.TrimSuffix(data, []byte("\n")))
	for i := end; n > 0; n-- {
		at := bytes.LastIndexByte(data[:i], '\n')
		if at < 0 {
			return data
		}
		if n == 1 {
			return data[at+1:]
		}
		i = at
	}
	return nil
}
