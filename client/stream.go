package client

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/eventstream"
)

// Stream connects the caller of ExecuteStream to the execution.
type Stream struct {
	// Stdout and Stderr receive the program's output as it comes; nil discards it. A failing write ends the execution.
	Stdout, Stderr io.Writer
	// Stdin, unless nil, is sent as it comes, to its end. A Read that blocks at the execution's end is abandoned; its
	// goroutine ends when the Read returns.
	Stdin io.Reader
	// Holds receives all waiting requests whenever they change, in sequence with the output; nil ignores them. Only
	// ExecuteStream calls it.
	Holds func([]api.Hold)
	// Started is called once, with the id of the execution, before any output.
	Started func(id string)
}

// ExecuteStream runs a snippet and passes on its output as it comes. It returns the record of the execution, without
// output that was passed on. A stream that breaks off is an error, and the server then ends the execution. The end of
// ctx does the same.
func (c *Client) ExecuteStream(ctx context.Context, req api.ExecuteRequest, s Stream) (api.Execution, error) {
	req.StdinStream = s.Stdin != nil
	return run[api.Execution](ctx, c, at("/execute/stream"), req, s, "the server has ended the execution; look at its log")
}

// run requests an operation with a Stream, and serves the stream to its end.
func run[T any](ctx context.Context, c *Client, to endpoint, req any, s Stream, hint string) (result T, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b, err := json.Marshal(req)
	if err != nil {
		return result, cove.Errorf(cove.InvalidArgument, "cannot encode the request: %w", err)
	}
	resp, err := c.send(ctx, http.MethodPost, to, "application/json", bytes.NewReader(b))
	if err != nil {
		return result, err
	}
	defer resp.Body.Close()
	if err := checkStream(resp); err != nil {
		return result, err
	}
	id := resp.Header.Get(api.ExecutionIDHeader)
	if s.Started != nil {
		s.Started(id)
	}
	if s.Stdin != nil {
		stop := c.feed(ctx, id, s.Stdin)
		defer stop()
	}
	return follow[T](ctx, resp.Body, s, hint)
}

// Follow passes on the output of a running execution, from its beginning, and returns its record at its end, without
// the output. Followers neither slow nor end the execution. It ignores s.Stdin.
func (c *Client) Follow(ctx context.Context, id string, s Stream) (api.Execution, error) {
	resp, err := c.send(ctx, http.MethodGet, executionPath(id).below("/stream"), "", nil)
	if err != nil {
		return api.Execution{}, err
	}
	defer resp.Body.Close()
	if err := checkStream(resp); err != nil {
		return api.Execution{}, err
	}
	if s.Started != nil {
		s.Started(id)
	}
	return follow[api.Execution](ctx, resp.Body, s, "look at the server's log; the execution may still run")
}

// feed sends stdin to the execution until stop is called. stop waits for the request but not for a Read that blocks.
func (c *Client) feed(ctx context.Context, id string, stdin io.Reader) (stop func()) {
	pr, pw := io.Pipe()
	go func() {
		_, err := io.Copy(pw, stdin)
		pw.CloseWithError(err)
	}()
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer close(done)
		defer pr.Close()
		to := executionPath(id).below("/stdin")
		// A program may end without reading its input, so a failure here is no error; the stream reports the outcome.
		if resp, err := c.send(ctx, http.MethodPost, to, "application/octet-stream", pr); err == nil {
			io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
			resp.Body.Close()
		}
	}()
	return func() {
		pr.Close()
		cancel()
		<-done
	}
}

func checkStream(resp *http.Response) error {
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "text/event-stream" {
		return cove.Errorf(cove.Unavailable, "the answer is %.40q and not a stream of events", kind).
			WithHint("check that the address is a Cove server's")
	}
	return nil
}

// follow reads events up to the last one, which contains the result. hint is for a stream without a last event.
func follow[T any](ctx context.Context, r io.Reader, s Stream, hint string) (result T, err error) {
	lost := loss{of: "the execution", words: "the connection ended before the execution did", hint: hint}
	err = each(ctx, r, lost, func(ev event) (last bool, err error) {
		switch ev.name {
		case api.EventStdout:
			return false, write(s.Stdout, ev.data)
		case api.EventStderr:
			return false, write(s.Stderr, ev.data)
		case api.EventHolds:
			var l api.HoldList
			if err := ev.decode(&l); err != nil {
				return false, err
			}
			if s.Holds != nil {
				s.Holds(l.Holds)
			}
		case api.EventDone:
			return true, ev.decode(&result)
		}
		return false, nil
	})
	return result, err
}

// loss describes a stream that ends before its last event.
type loss struct{ of, words, hint string }

func (l loss) error(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return cove.Errorf(cove.Canceled, "%s was given up: %w", l.of, context.Cause(ctx))
	}
	if errors.Is(err, io.EOF) {
		err = eventstream.ErrBrokenOff
	}
	return cove.Errorf(cove.Unavailable, "%s: %w", l.words, err).WithHint("%s", l.hint)
}

// each passes on events until take reports the last one or fails. It returns an error that the server sends.
func each(ctx context.Context, r io.Reader, lost loss, take func(event) (last bool, err error)) error {
	events := eventstream.NewReader(r, maxAnswer)
	for {
		read, err := events.Next()
		if err != nil {
			return lost.error(ctx, err)
		}
		ev := event{name: read.Name, data: read.Data}
		if ev.name == api.EventError {
			var e api.Error
			if err := ev.decode(&e); err != nil {
				return err
			}
			return remoteError(e, http.StatusInternalServerError)
		}
		if last, err := take(ev); last || err != nil {
			return err
		}
	}
}

// event is a server-sent event with JSON data.
type event struct{ name, data string }

func (e event) decode(v any) error {
	if err := json.Unmarshal([]byte(e.data), v); err != nil {
		return malformed(e.name, err)
	}
	return nil
}

func malformed(name string, err error) error {
	return cove.Errorf(cove.Unavailable, "a malformed %q event came from the server: %w", name, err)
}

// write writes the data of an output event.
func write(w io.Writer, data string) error {
	var o api.OutputEvent
	if err := json.Unmarshal([]byte(data), &o); err != nil {
		return malformed("output", err)
	}
	if w == nil {
		return nil
	}
	b, err := outputOf(o)
	if err != nil {
		return err
	}
	if _, err := w.Write(b); err != nil {
		return cove.Errorf(cove.Canceled, "cannot write the program's output: %w", err)
	}
	return nil
}

// outputOf returns the data of an output event.
func outputOf(o api.OutputEvent) ([]byte, error) {
	switch o.Encoding {
	case "":
		return []byte(o.Data), nil
	case "base64":
		b, err := base64.StdEncoding.DecodeString(o.Data)
		if err != nil {
			return nil, malformed("output", err)
		}
		return b, nil
	}
	return nil, cove.Errorf(cove.Unavailable, "output in the unknown encoding %.20q came from the server", o.Encoding).
		WithHint("update this cove: the server is newer")
}
