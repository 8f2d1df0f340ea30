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

// Stream is how the caller of ExecuteStream takes part.
type Stream struct {
	// Stdout and Stderr receive the program's output as it comes; nil drops
	// it. A failing write ends the execution.
	Stdout, Stderr io.Writer
	// Stdin, when it is not nil, is sent as it comes, to its end. A Read that
	// blocks when the execution ends is left behind; its goroutine goes when
	// the Read returns.
	Stdin io.Reader
	// Holds is told of all that waits for an answer whenever that changes, in
	// turn with the output; nil if that is of no interest. Only ExecuteStream has
	// it told.
	Holds func([]api.Hold)
	// Started is called once, with the id of the execution, before any output.
	Started func(id string)
}

// ExecuteStream runs a snippet and hands out its output as it comes. It
// returns the record of the execution, without the output that was handed out
// already. A stream that breaks off is an error: the server then ends the
// execution. Ending ctx does the same.
func (c *Client) ExecuteStream(ctx context.Context, req api.ExecuteRequest, s Stream) (api.Execution, error) {
	req.StdinStream = s.Stdin != nil
	return run[api.Execution](ctx, c, "/execute/stream", req, s, "the server has ended the execution; look at its log")
}

// run asks for what has a Stream, and takes part in it until it is done.
func run[T any](ctx context.Context, c *Client, path string, req any, s Stream, hint string) (result T, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b, err := json.Marshal(req)
	if err != nil {
		return result, cove.Errorf(cove.InvalidArgument, "cannot encode the request: %w", err)
	}
	resp, err := c.send(ctx, http.MethodPost, path, "application/json", bytes.NewReader(b))
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

// Follow hands out the output of an execution that runs on the server, from its
// beginning, and returns its record when it has ended, without the output. Who
// follows neither slows the execution nor ends it. Stdin of s is not used.
func (c *Client) Follow(ctx context.Context, id string, s Stream) (api.Execution, error) {
	path, err := executionPath(id)
	if err != nil {
		return api.Execution{}, err
	}
	resp, err := c.send(ctx, http.MethodGet, path+"/stream", "", nil)
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

// feed sends stdin to the execution until stop is called, which waits for the
// request but not for a Read that blocks.
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
		path, err := executionPath(id)
		if err != nil {
			return
		}
		// A program may end without reading its input, so a failure here says
		// nothing; what matters comes through the stream.
		if resp, err := c.send(ctx, http.MethodPost, path+"/stdin", "application/octet-stream", pr); err == nil {
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

// follow reads events until the one that ends the stream, with the result in
// it. What to do when none comes is in the hint.
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

// loss is what is said of a stream that ends before its last event.
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

// each hands out events until one is the last, or cannot be taken. An error that
// the server sends is returned.
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

// event is one of those, with data that is JSON.
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

// write hands out the data of an output event.
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

// outputOf is the data of an output event.
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
