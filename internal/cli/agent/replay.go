package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

type replayOptions struct {
	speed    float64
	terminal string
	verbose  bool
}

const longestPause = 3 * time.Second

func runsReplay(sess *session.Session) *cobra.Command {
	var r runTarget
	var o replayOptions
	c := &cobra.Command{
		Use:   "replay",
		Short: "Play what an agent said and did, or the recording of its terminal",
		Long: `Play what an agent said and did, as it was shown when it happened, or the
recording of its terminal where it had one. Of a run that goes on it follows.
Pauses are those there were, at most three seconds; --speed 0 leaves them out.`,
		Example: "  cove runs replay --speed 4 RUN\n  cove runs replay --last --json | jq .tool",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.speed < 0 {
				return ui.UsageError(cmd, "--speed %g: it must be 0 or more", o.speed)
			}
			ctx, interrupts := ui.CoverSignals(cmd.Context(), sess.Out, sess.Err)
			defer interrupts.Stop()
			return interrupts.Explain(sess.ReadRecords(ctx,
				func(c *client.Client) error {
					id, err := r.find(ctx, c)
					if err != nil {
						return err
					}
					return replay(ctx, sess, c, id, o)
				}))
		},
	}
	r.addTo(c)
	f := c.Flags()
	f.Float64Var(&o.speed, "speed", 1, "so many times as `FAST`; 0 is without pauses")
	f.StringVar(&o.terminal, "terminal", "", "the recording of this `TERMINAL`")
	sess.AddJSON(f, "print messages as JSON, one on each line, without pauses")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "show everything, however long, and what the agent logged")
	return c
}

func replay(ctx context.Context, sess *session.Session, c *client.Client, id string, o replayOptions) error {
	run, err := c.Run(ctx, id)
	if err != nil {
		return err
	}
	if o.terminal == "" && run.Interactive && len(run.Recordings) > 0 {
		o.terminal = run.Recordings[0]
	}
	if o.terminal != "" {
		pr, pw := io.Pipe()
		go func() { pw.CloseWithError(c.RunRecording(ctx, run.ID, o.terminal, pw)) }()
		defer pr.Close()
		return playCast(ctx, sess, pr, o.speed)
	}
	pace := pacer{speed: o.speed}
	view := newView(sess.Out, func() int {
		if ui.IsTerminal(sess.Out) {
			return ui.Columns(sess.Out)
		}
		return 0
	})
	view.color, view.verbose = sess.Say.Color && ui.IsTerminal(sess.Out), o.verbose
	s := client.RunStream{
		Message: func(m api.Message) error {
			if sess.JSON {
				return sess.PrintJSONLine(m)
			}
			if err := pace.until(ctx, m.Time); err != nil {
				return err
			}
			view.message(m)
			if m.Type == api.MessageResult && m.Content != view.spoken {
				view.text(api.Message{Type: api.MessageThinking, Content: m.Content})
			}
			return nil
		},
		Decision: func(d api.Decision) error {
			if !sess.JSON {
				view.decision(d, sess.Say)
			}
			return nil
		},
	}
	if o.verbose && !sess.JSON {
		s.Log = func(b []byte) error { view.log(string(b)); return nil }
	}
	ended, err := c.FollowRun(ctx, run.ID, s)
	if err != nil || sess.JSON {
		return err
	}
	view.end()
	sess.Say.Line("%s", runText(ended))
	return nil
}

type pacer struct {
	speed float64
	last  time.Time
}

func (p *pacer) until(ctx context.Context, at time.Time) error {
	pause := at.Sub(p.last)
	if p.last.IsZero() {
		pause = 0
	}
	p.last = at
	return p.pause(ctx, pause)
}

func (p *pacer) pause(ctx context.Context, d time.Duration) error {
	if p.speed == 0 || d <= 0 {
		return ctx.Err()
	}
	select {
	case <-time.After(min(time.Duration(float64(d)/p.speed), longestPause)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// playCast plays a recording in the asciicast format, version 2: a header, then output with its time. The output was
// filtered before it was recorded.
func playCast(ctx context.Context, sess *session.Session, from io.Reader, speed float64) error {
	lines := bufio.NewReader(from)
	if _, err := lines.ReadBytes('\n'); err != nil {
		return err
	}
	pace := pacer{speed: speed}
	for at := 0.0; ; {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return sess.Print("\x1b[m\x1b[?1049l\x1b[?25h\n") // whatever it has left behind
		}
		if err != nil {
			return err
		}
		var when float64
		var kind, data string
		event := []any{&when, &kind, &data}
		if json.Unmarshal(line, &event) != nil || len(event) != 3 {
			return cove.Errorf(cove.Corrupt, "the recording cannot be read").WithHint("look at it: cove runs export")
		}
		if err := pace.pause(ctx, time.Duration((when-at)*float64(time.Second))); err != nil {
			return err
		}
		if at = when; kind == "o" {
			if err := sess.Print(data); err != nil {
				return err
			}
		}
	}
}
