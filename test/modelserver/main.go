// Command modelserver serves a model that follows a script, so that agents can be tried without an account: it speaks
// Anthropic's Messages, OpenAI's chat completions and Responses, and Gemini's generateContent, calls the tools that an
// agent offers, and goes wrong on demand. Without --script it looks at the project, runs its tests, leaves a note and
// tries a host that no policy allows, whatever it is asked.
//
// Its address is printed on standard output, and a line for each request on standard error. docs/model-server.md says
// how scripts are written.
//
//	go run ./test/modelserver
//	go run ./test/modelserver --script script.yaml --record requests.ndjson
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove/test/modeltest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "modelserver:", err)
		os.Exit(1)
	}
}

// run serves until the context is over.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var o modeltest.Options
	flags := flag.NewFlagSet("modelserver", flag.ContinueOnError)
	flags.SetOutput(stderr)
	listen := flags.String("listen", "127.0.0.1:8089", "HOST:PORT to listen on; port 0 is a free one")
	script := flags.String("script", "", "the `file` of what the model says (default: the built-in script)")
	record := flags.String("record", "",
		"append each request to this `file`, as NDJSON with headers, keys among them, and bodies")
	cert := flags.String("tls-cert", "", "the `file` of a certificate, to speak TLS")
	certKey := flags.String("tls-key", "", "the `file` of its key")
	flags.Func("key", "accept this `key` (repeatable; default: any, or none)", func(key string) error {
		o.Keys = append(o.Keys, key)
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%q is no flag: -h lists them", flags.Arg(0))
	}
	if *script != "" {
		text, err := os.ReadFile(*script)
		if err != nil {
			return err
		}
		if o.Script, err = modeltest.Parse(*script, text); err != nil {
			return err
		}
	}
	if (*cert == "") != (*certKey == "") {
		return errors.New("--tls-cert and --tls-key are given together")
	}
	keep := func(modeltest.Request) error { return nil }
	if *record != "" {
		file, err := os.OpenFile(*record, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		defer file.Close()
		lines := json.NewEncoder(file)
		keep = func(r modeltest.Request) error { return lines.Encode(r) }
	}
	var mu sync.Mutex // one line at a time
	o.Seen = func(r modeltest.Request) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(stderr, line(r))
		if err := keep(r); err != nil {
			fmt.Fprintln(stderr, "modelserver:", err)
		}
	}
	return serve(ctx, modeltest.New(o), *listen, *cert, *certKey, stdout)
}

func serve(ctx context.Context, models http.Handler, listen, cert, certKey string, stdout io.Writer) error {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("cannot listen on %s: %w: choose another address with --listen", listen, err)
	}
	s := &http.Server{Handler: models, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { s.Close() })()
	scheme, accept := "http", s.Serve
	if cert != "" {
		scheme, accept = "https", func(l net.Listener) error { return s.ServeTLS(l, cert, certKey) }
	}
	if _, err := fmt.Fprintf(stdout, "%s://%s\n", scheme, ln.Addr()); err != nil {
		ln.Close()
		return err
	}
	if err := accept(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// line says of a request what came of it.
func line(r modeltest.Request) string {
	text := fmt.Sprintf("%s %s %d", r.Method, r.Path, r.Status)
	if r.Turn > 0 {
		text += fmt.Sprintf(", turn %d of %.60q", r.Turn, r.Prompt)
	}
	if r.Fault {
		text += ", gone wrong as the script wants"
	}
	if r.Problem != "" {
		text += ": " + r.Problem
	}
	return text
}
