package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// generateOptions are the flags of "cove generate": those that it shares with agents, and its own.
type generateOptions struct {
	options
	files     []string
	maxTokens int
}

func generateCommand(sess *session.Session) *cobra.Command {
	o := &generateOptions{}
	c := &cobra.Command{
		Use:   "generate [PROMPT]",
		Short: "Ask a model for a single answer",
		Long: `Ask a model for a single answer to PROMPT, a file of it (--prompt-file), or standard
input ("-"). What is piped in belongs to the prompt, and so do files (--file).

There is no agent: the model has no tools and sees no directory, so an answer costs
a fraction of what a task costs. No sandbox is made. The key stays in the gateway,
which asks the provider, keeps to --budget, and records what has left: "cove network
log" shows that, and "cove ps --all" the answer.

The provider is the first whose key is there (--model-provider names another one),
and the model its newest (--model). The answer is on standard output as it comes; with
--schema it is JSON that is valid by the schema, or else is asked for once more.

Exit codes: 0 it has answered; 1 the model refuses, or the answer is not valid by
the schema; 124 out of time; 137 the budget is used up; 130 interrupted; 123 there is
no key, or the models cannot be reached. "cove help exit-codes" has all of them.`,
		Example: `  cove generate "write a haiku about sandboxes"
  git diff --staged | cove generate "write a commit message for this" -q
  cove generate --file report.txt --schema figures.json "what are the figures?"
  cove generate --json --model-provider openai --max-tokens 500 - <question.txt`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Given = cmd.Flags().Changed
			o.prompt = strings.Join(args, "")
			if err := o.check(cmd); err != nil {
				return err
			}
			if o.Given("max-tokens") && o.maxTokens < 1 {
				return ui.UsageError(cmd, "--max-tokens %d: it must be at least 1", o.maxTokens)
			}
			return generate(cmd.Context(), sess, o)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := c.Flags()
	f.StringVar(&o.promptFile, "prompt-file", "", "read the prompt from `FILE`")
	f.StringArrayVar(&o.files, "file", nil, "the text file `PATH` belongs to the prompt (repeatable)")
	f.StringVar(&o.schema, "schema", "", "the answer is JSON, valid by the JSON Schema in `FILE`")
	f.StringVar(&o.model, "model", "", "`MODEL` of the provider")
	f.StringVar(&o.instructions, "instructions", "", "`TEXT` that the model is told before the prompt")
	f.IntVar(&o.maxTokens, "max-tokens", 0, "`COUNT` of tokens of one answer, at most")
	o.Models.Add(f)
	f.Lookup("model-provider").Usage = "ask the models of the provider `NAME`, such as anthropic, openai or openrouter"
	f.StringVar(&o.Timeout, "timeout", "", "wall `TIME`, like 10m")
	sess.AddJSON(f, "print one JSON object with the answer and its usage")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print the answer only")
	f.SortFlags = false
	sess.AddProfile(c, &o.Profile)
	return c
}

// generate asks for an answer, and prints it.
func generate(ctx context.Context, sess *session.Session, o *generateOptions) error {
	in := ui.WatchSignals(sess.Out, sess.Err)
	defer in.Stop()
	server, err := session.Settle(ctx, sess, false)
	if err != nil {
		return err
	}
	req, err := o.request(sess)
	if err != nil {
		return err
	}
	ctx, cancel := in.Cover(ctx)
	defer cancel()
	b, err := session.Use(ctx, sess, server, false)
	if err != nil {
		return in.Explain(err)
	}
	session.ShareKeys(ctx, sess, b.Client)
	g, err := ask(ctx, sess, o, b.Client, req, in)
	if cerr := b.Close(); err == nil && cerr != nil {
		sess.Say.Fail(cerr) // the answer stands
	}
	if err != nil {
		if sess.JSON && !errors.Is(err, syscall.EPIPE) && cove.ErrorCode(err) != cove.Canceled {
			sess.PrintJSON(session.ProblemOf(sess, err))
		}
		return in.Explain(err)
	}
	r := api.Run{Agent: cmp.Or(g.Model, g.Provider), Status: g.Status, LimitHit: g.LimitHit, Timeout: g.Timeout,
		Usage: g.Usage, Error: g.Error}
	sess.Exit = exitOfRun(r, in.First())
	if sess.JSON {
		return sess.PrintJSON(g)
	}
	if g.Status == api.RunFailed && g.Error != nil {
		sess.Say.Fail(runError(r))
	}
	if !o.quiet || g.Status == api.RunLimit {
		sess.Say.Line("%s", answerText(r))
	}
	return nil
}

// request returns the question that the flags and standard input are.
func (o *generateOptions) request(sess *session.Session) (req api.GenerateRequest, err error) {
	req = api.GenerateRequest{Model: o.model, Instructions: o.instructions, MaxTokens: o.maxTokens}
	if req.Prompt, err = readPrompt(sess, &o.options); err != nil {
		return req, err
	}
	if o.prompt != "-" && o.promptFile != "-" {
		piped, err := readPiped(sess)
		if err != nil {
			return req, err
		}
		req.Prompt = strings.Trim(req.Prompt+"\n\n"+piped, "\n")
	}
	if req.Prompt == "" {
		return req, cove.Errorf(cove.InvalidArgument, "PROMPT is missing").
			WithHint("write it in quotes, in a file for --prompt-file, or on standard input for \"-\"")
	}
	if req.Files, err = flags.ReadFiles(o.files); err != nil {
		return req, err
	}
	if req.Schema, err = o.readSchema(); err != nil {
		return req, err
	}
	models, err := o.Models.Permission()
	if err != nil {
		return req, err
	}
	req.Budget = models.Budget
	switch len(models.Providers) {
	case 0:
	case 1:
		req.Provider = models.Providers[0]
	default:
		return req, cove.Errorf(cove.InvalidArgument, "--model-provider: one provider answers, not %d", len(models.Providers))
	}
	if _, req.Timeout, err = o.Limits(); err != nil {
		return req, err
	}
	req.Profile, err = sess.ResolveProfile(o.Profile)
	return req, err
}

// readPiped returns what is piped in; nothing from a terminal.
func readPiped(sess *session.Session) (string, error) {
	if ui.IsNull(sess.In) || ui.IsTerminal(sess.In) {
		return "", nil
	}
	defer sess.Waits("waiting for the end of standard input, which belongs to the prompt (</dev/null leaves it out)")()
	const name = "standard input"
	data, err := flags.ReadLimited(sess.In, name, maxPrompt)
	if err != nil {
		return "", err
	}
	return string(data), flags.CheckText(name, string(data))
}

// ask asks a server. A signal ends the answer, whose record then still arrives.
func ask(ctx context.Context, sess *session.Session, o *generateOptions, c *client.Client, req api.GenerateRequest,
	in *ui.Interrupts) (api.Generated, error) {
	out := &answerWriter{to: sess.Out, plain: ui.IsTerminal(sess.Out)}
	s := client.Stream{Stdout: out, Stderr: noteWriter{sess}}
	if sess.JSON {
		s.Stdout = nil
	}
	if sess.JSON || o.quiet {
		s.Stderr = nil
	}
	defer in.Settle()
	s.Started = func(id string) { in.OnSignal(func() { session.Kill(ctx, c, in, id) }) }
	g, err := c.Generate(ctx, req, s)
	return g, cmp.Or(err, out.end())
}

// answerWriter writes an answer as it comes, with a line feed at its end. A terminal gets no control characters.
type answerWriter struct {
	to    io.Writer
	plain bool
	open  bool // the last line has not ended
}

func (w *answerWriter) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	w.open = p[len(p)-1] != '\n'
	text := p
	if w.plain && utf8.Valid(p) { // the server sends whole characters
		lines := strings.Split(strings.ReplaceAll(string(p), "\r\n", "\n"), "\n")
		for i, line := range lines {
			lines[i] = ui.Printable(strings.ReplaceAll(line, "\t", "    "))
		}
		text = []byte(strings.Join(lines, "\n"))
	}
	_, err := w.to.Write(text)
	return len(p), err
}

func (w *answerWriter) end() error {
	if !w.open {
		return nil
	}
	_, err := io.WriteString(w.to, "\n")
	return err
}

// noteWriter says what the server notes, a line each.
type noteWriter struct{ sess *session.Session }

func (w noteWriter) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		w.sess.Say.Line("%s", bytes.TrimRight(line, "\n"))
	}
	return len(p), nil
}

// answerText says how a question has ended, and what was used.
func answerText(r api.Run) string {
	parts := []string{ui.TimeText(time.Duration(r.Usage.Duration * float64(time.Second)))}
	if u := usedText(r.Usage); u != "" {
		parts = append(parts, u)
	}
	took := " (" + strings.Join(parts, ", ") + ")"
	if r.Status == api.RunLimit {
		return limitText(r) + took
	}
	ended := map[string]string{api.RunSucceeded: "has answered", api.RunInterrupted: "was interrupted"}[r.Status]
	return fmt.Sprintf("%s %s%s", r.Agent, cmp.Or(ended, "has not answered"), took)
}
