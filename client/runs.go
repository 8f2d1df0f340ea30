package client

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
)

// RunStream receives the events of an agent's run: its functions are called one at a time, as things happen, and may be
// nil. An error of one ends the stream, and is returned.
type RunStream struct {
	Progress func(api.Progress) error // before the agent starts
	Started  func(api.Run) error      // once, when the run has its id
	Message  func(api.Message) error
	Log      func([]byte) error       // the agent's standard error
	Decision func(api.Decision) error // the gateway's decisions on the sandbox's egress
	Holds    func([]api.Hold) error   // all waiting requests, whenever they change
}

// StartRun gives an agent a task and follows it to its end. Unless the request is detached, the end of ctx interrupts
// the run. A run that failed, or was ended by a caller or a limit, is returned without an error.
func (c *Client) StartRun(ctx context.Context, req api.RunRequest, s RunStream) (api.Run, error) {
	b, err := json.Marshal(req)
	if err != nil {
		return api.Run{}, cove.Errorf(cove.InvalidArgument, "cannot encode the request: %w", err)
	}
	return c.takePart(ctx, http.MethodPost, at("/runs"), bytes.NewReader(b), s)
}

// CheckRun returns the error that StartRun would return before anything is fetched or made. The repository is not
// looked at, and an upload need not be there.
func (c *Client) CheckRun(ctx context.Context, req api.RunRequest) error {
	return c.call(ctx, http.MethodPost, at("/runs/check"), req, nil)
}

// FollowRun follows a run from its beginning to its end, even after its end. Followers neither slow nor end a run.
func (c *Client) FollowRun(ctx context.Context, id string, s RunStream) (api.Run, error) {
	return c.takePart(ctx, http.MethodGet, runPath(id).below("/events"), nil, s)
}

// RunQuery selects runs; zero fields select all.
type RunQuery struct {
	Agent   string
	Status  string
	Sandbox string // id of the sandbox
	Before  string // RunList.Next of the previous page
	Limit   int
}

// Runs lists runs, newest first.
func (c *Client) Runs(ctx context.Context, o RunQuery) (api.RunList, error) {
	q := query{}
	q.set("agent", o.Agent)
	q.set("status", o.Status)
	q.set("sandbox", o.Sandbox)
	q.set("before", o.Before)
	if o.Limit > 0 {
		q.set("limit", strconv.Itoa(o.Limit))
	}
	return ask[api.RunList](ctx, c, http.MethodGet, at("/runs").with(q), nil)
}

// Run returns a run by its id or a unique prefix of it.
func (c *Client) Run(ctx context.Context, id string) (api.Run, error) {
	return ask[api.Run](ctx, c, http.MethodGet, runPath(id), nil)
}

// InterruptRun asks the agent of a run to stop; with kill the run ends at once.
func (c *Client) InterruptRun(ctx context.Context, id string, kill bool) error {
	return c.call(ctx, http.MethodPost, runPath(id).below("/interrupt"), api.RunInterrupt{Kill: kill}, nil)
}

// RemoveRun removes the record of a run that has ended.
func (c *Client) RemoveRun(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, runPath(id), nil, nil)
}

// ExportRun writes the record of a run as a tar archive.
func (c *Client) ExportRun(ctx context.Context, id string, out io.Writer) error {
	return c.copy(ctx, runPath(id).below("/export"), out)
}

// RunRecording writes the recording of a run's terminal, as asciicast. The content is the sandbox's: a terminal would
// obey its control sequences.
func (c *Client) RunRecording(ctx context.Context, id, terminal string, out io.Writer) error {
	return c.copy(ctx, runPath(id).below("/recordings/"+url.PathEscape(terminal)), out)
}

// takePart requests the events of a run, and passes them on to the last.
func (c *Client) takePart(ctx context.Context, method string, to endpoint, body io.Reader,
	s RunStream) (run api.Run, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := c.send(ctx, method, to, "application/json", body)
	if err != nil {
		return run, err
	}
	defer resp.Body.Close()
	if err := checkStream(resp); err != nil {
		return run, err
	}
	lost := loss{of: "the run", words: "the connection ended before the run did",
		hint: "\"cove runs list\" shows what became of it"}
	err = each(ctx, resp.Body, lost, func(ev event) (last bool, err error) {
		switch ev.name {
		case api.EventProgress:
			return false, hand(ev, s.Progress)
		case api.EventRun:
			return false, hand(ev, s.Started)
		case api.EventMessage:
			return false, hand(ev, s.Message)
		case api.EventDecision:
			return false, hand(ev, s.Decision)
		case api.EventHolds:
			return false, hand(ev, func(l api.HoldList) error {
				if s.Holds == nil {
					return nil
				}
				return s.Holds(l.Holds)
			})
		case api.EventLog:
			return false, hand(ev, s.log)
		case api.EventDone:
			return true, ev.decode(&run)
		}
		return false, nil
	})
	return run, err
}

func (s RunStream) log(o api.OutputEvent) error {
	b, err := outputOf(o)
	if err != nil || s.Log == nil {
		return err
	}
	return s.Log(b)
}

// hand decodes an event's data for a receiver, unless that is nil.
func hand[T any](ev event, to func(T) error) error {
	if to == nil {
		return nil
	}
	var v T
	if err := ev.decode(&v); err != nil {
		return err
	}
	return to(v)
}

// runPath returns the path of a run, and refuses ids that would change the path.
func runPath(id string) endpoint { return at("/runs").item(id, "the id of a run") }
