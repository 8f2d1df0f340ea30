package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/modeltest"
)

func devCommand(sess *session.Session) *cobra.Command {
	return ui.Group(&cobra.Command{
		Use:   "dev",
		Short: "Try Cove, and build on it, without an account",
	}, modelServerCommand(sess))
}

type modelServerFlags struct {
	listen, script, record string
	cert, certKey          string
	keys                   []string
}

func modelServerCommand(sess *session.Session) *cobra.Command {
	var f modelServerFlags
	c := &cobra.Command{
		Use:   "model-server",
		Short: "Serve a model that follows a script",
		Long: `Serve a model that follows a script, so that agents can be tried without an
account: it speaks Anthropic's Messages, OpenAI's chat completions and Responses,
and Gemini's generateContent, calls the tools that an agent offers, and goes wrong
on demand. Without --script it looks at the project, runs its tests, leaves a note
and tries a host that no policy allows, whatever it is asked.

Its address is printed on standard output, and a line for each request on
standard error. docs/model-server.md says how scripts are written.`,
		Example: `  cove dev model-server
  cove dev model-server --script script.yaml --record requests.ndjson
  ANTHROPIC_BASE_URL=http://127.0.0.1:8089 ANTHROPIC_API_KEY=any claude -p 'look around'`,
		RunE: func(cmd *cobra.Command, _ []string) error { return serveModels(cmd.Context(), sess, f) },
	}
	c.Flags().StringVar(&f.listen, "listen", "127.0.0.1:8089", "`ADDRESS` HOST:PORT to listen on; port 0 is a free one")
	c.Flags().StringVar(&f.script, "script", "", "`FILE` of what the model says (default: the built-in script)")
	c.Flags().StringArrayVar(&f.keys, "key", nil, "accept this `KEY` (repeatable; default: any, or none)")
	c.Flags().StringVar(&f.record, "record", "",
		"append each request to `FILE`, as NDJSON with headers, keys among them, and bodies")
	c.Flags().StringVar(&f.cert, "tls-cert", "", "`FILE` of a certificate, to speak TLS")
	c.Flags().StringVar(&f.certKey, "tls-key", "", "`FILE` of its key")
	return c
}

func serveModels(ctx context.Context, sess *session.Session, f modelServerFlags) error {
	o := modeltest.Options{Keys: f.keys}
	if f.script != "" {
		text, err := os.ReadFile(f.script)
		if err != nil {
			return cove.Errorf(cove.InvalidArgument, "%w", err)
		}
		if o.Script, err = modeltest.Parse(f.script, text); err != nil {
			return err
		}
	}
	if (f.cert == "") != (f.certKey == "") {
		return cove.Errorf(cove.InvalidArgument, "--tls-cert and --tls-key are given together")
	}
	record := func(modeltest.Request) error { return nil }
	if f.record != "" {
		file, err := os.OpenFile(f.record, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return cove.Errorf(cove.InvalidArgument, "%w", err)
		}
		defer file.Close()
		lines := json.NewEncoder(file)
		record = func(r modeltest.Request) error { return lines.Encode(r) }
	}
	var mu sync.Mutex // one line at a time
	o.Seen = func(r modeltest.Request) {
		mu.Lock()
		defer mu.Unlock()
		sess.Say.Line("%s", modelLine(r))
		if err := record(r); err != nil {
			sess.Say.Fail(err)
		}
	}
	ctx, in := ui.CoverSignals(ctx)
	defer in.Stop()
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return cove.Errorf(cove.InvalidArgument, "cannot listen on %s: %w", f.listen, err).
			WithHint("choose another address with --listen")
	}
	s := &http.Server{Handler: modeltest.New(o), ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { s.Close() })()
	scheme, serve := "http", s.Serve
	if f.cert != "" {
		scheme, serve = "https", func(l net.Listener) error { return s.ServeTLS(l, f.cert, f.certKey) }
	}
	if err := sess.Print(fmt.Sprintf("%s://%s\n", scheme, ln.Addr())); err != nil {
		ln.Close()
		return err
	}
	if err := serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return cove.Errorf(cove.InvalidArgument, "%w", err)
	}
	return nil
}

func modelLine(r modeltest.Request) string {
	line := fmt.Sprintf("%s %s %d", r.Method, r.Path, r.Status)
	if r.Turn > 0 {
		line += fmt.Sprintf(", turn %d of %.60q", r.Turn, r.Prompt)
	}
	if r.Fault {
		line += ", gone wrong as the script wants"
	}
	if r.Problem != "" {
		line += ": " + r.Problem
	}
	return line
}
