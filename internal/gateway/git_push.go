package gateway

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"slices"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
	"github.com/cove-sandbox/cove/internal/git/inspect"
	git "github.com/cove-sandbox/cove/internal/git/policy"
	"github.com/cove-sandbox/cove/internal/git/smart"
)

const maxCommands = 8 << 20 // bounds the part of a push before its pack, in bytes

const maxSpooled = 4 // bounds the pushes of one sandbox that are stored at a time, until they are judged; others wait

// spool stores a push as it was judged, in a file without a name.
type spool struct {
	file *os.File
	size int64
	done func()
}

func (s *spool) close() {
	s.file.Close()
	s.done()
}

// spool reads the body of a push, decoded, into a file.
func (g *gitRequest) spool() (*spool, error) {
	r, err := g.decoded(commandsType)
	if err != nil {
		return nil, err
	}
	select {
	case g.places <- struct{}{}:
	case <-g.http.Context().Done():
		return nil, cove.Errorf(cove.Unavailable, "the client that pushes has gone")
	}
	s := &spool{done: func() { <-g.places }}
	if s.file, err = os.CreateTemp(g.dir, "push-"); err != nil {
		s.done()
		return nil, cove.Errorf(cove.StorageFull, "there is no room for what is pushed: %w", err)
	}
	os.Remove(s.file.Name())
	most := int64(maxCommands)
	for _, p := range g.rights {
		most = max(most, p.PackLimit()+maxCommands)
	}
	s.size, err = io.Copy(s.file, io.LimitReader(r, most+1))
	var full *os.PathError
	switch {
	case errors.As(err, &full):
		err = cove.Errorf(cove.StorageFull, "there is no room for what is pushed: %w", err)
	case err != nil:
		err = cove.Errorf(cove.InvalidArgument, "the push broke off: %w", err)
	case s.size > most:
		err = &proxy.Refusal{Code: cove.TooLarge, Rule: g.rights[0].ID,
			Reason: fmt.Sprintf("the push has more than %d MiB; push in parts, or raise max_pack_mb in the policy's git section",
				(most-maxCommands)>>20)}
	default:
		_, err = s.file.Seek(0, io.SeekStart)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// push judges a push, and sends on exactly the bytes that were judged.
func (g *gitRequest) push() (_ leg, err error) {
	g.version()
	s, err := g.spool()
	if err != nil {
		return leg{}, err
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	ctx := g.http.Context()
	commands, err := smart.ParseCommands(s.file)
	if err != nil {
		return leg{}, refuseGit(ruleGit, plainMessage(err))
	}
	at, err := s.file.Seek(0, io.SeekCurrent)
	if err != nil {
		return leg{}, err
	}
	commands.Pack = s.size - at
	var warnings []string
	if !commands.Probe || commands.Pack > 0 {
		if warnings, err = g.judgePush(ctx, &commands, io.NewSectionReader(s.file, at, commands.Pack)); err != nil {
			return leg{}, sayOfPush(&commands, err)
		}
	}
	carry(g.http, s.size, func() io.Reader { return io.NewSectionReader(s.file, 0, s.size) })
	return leg{
		response: func(res *http.Response) error {
			if res.StatusCode != http.StatusOK || commands.Probe {
				return nil
			}
			if err := replaceable(res, smart.PushResult); err != nil {
				return err
			}
			result := smart.NewResult(res.Body, commands.RefusedBy)
			g.answer = result
			report := &overheard{body: result, end: func(said []byte) {
				if made, err := commands.Report(bytes.NewReader(said)); err == nil {
					g.repo.made(made)
					g.tellPushed(made)
				}
			}}
			replaceAnswer(res, commands.Warn(report, warnings...))
			return nil
		},
		problem: g.saidProblem,
		end:     func(error) { s.close() },
	}, nil
}

func (g *gitRequest) tellPushed(made []git.Update) {
	var commits []string
	for _, u := range made {
		if !u.Deletes() {
			commits = append(commits, u.New)
		}
	}
	if g.pushed != nil && len(commits) > 0 {
		g.pushed(g.object, commits)
	}
}

// overheard keeps the beginning of a stream, and hands it to end at the end of the stream.
type overheard struct {
	body io.Reader
	said bytes.Buffer
	end  func(said []byte)
}

const maxOverheard = 4 << 20 // larger than a server's report on a push, in bytes

func (o *overheard) Read(p []byte) (int, error) {
	n, err := o.body.Read(p)
	if o.said.Len() < maxOverheard {
		o.said.Write(p[:n])
	}
	if err == io.EOF && o.end != nil {
		o.end(o.said.Bytes())
		o.end = nil
	}
	return n, err
}

// judgePush judges a push by its commands, then by its pack. The error is the refusal.
func (g *gitRequest) judgePush(ctx context.Context, c *smart.Commands, pack io.Reader) (warnings []string, err error) {
	v := g.rights.least(func(p *git.Policy) git.Verdict { return p.Admit(c.Push) })
	switch {
	case v.Action == git.Deny:
		return nil, g.refusePush(c, v)
	case c.HasPack() != (c.Pack > 0):
		return nil, refuseGit(ruleGit, "the push has no pack where it needs one, or one where it needs none")
	}
	facts := git.Facts{}
	if c.HasPack() {
		if facts, err = g.inspect(ctx, c, pack); err != nil {
			return nil, err
		}
	}
	v = g.rights.least(func(p *git.Policy) git.Verdict { return p.Judge(c.Push, facts) })
	if v.Action == git.Ask {
		v = g.askPush(ctx, v)
	}
	if v.Action != git.Allow {
		return nil, g.refusePush(c, v)
	}
	return v.Warnings, nil
}

func (g *gitRequest) inspect(ctx context.Context, c *smart.Commands, pack io.Reader) (git.Facts, error) {
	if g.packs == nil {
		return git.Facts{}, unanswerable("packs cannot be looked into here, and are not passed on unseen", nil)
	}
	visible, settled, err := g.tips(ctx)
	if err != nil {
		return git.Facts{}, g.unanswered(err)
	}
	job := inspect.Job{Sandbox: g.inspected(), Pack: pack, Shallow: c.Shallow, Visible: visible, Settled: settled,
		Server: g, Watch: func(c git.Change) bool {
			return slices.ContainsFunc(g.rights, func(p *git.Policy) bool { return p.Watches(c) })
		}}
	for _, p := range g.rights {
		job.Max = max(job.Max, p.PackLimit())
		job.Secrets = append(job.Secrets, p.Secrets...)
		job.Known = job.Known || p.Known < git.Allow
	}
	for _, u := range c.Updates {
		if u.Deletes() {
			continue
		}
		compare := inspect.Compare{Update: u, From: u.Old}
		if u.Creates() {
			compare.From = g.repo.was(u.Ref)
		}
		job.Compare = append(job.Compare, compare)
	}
	facts, err := g.packs.Inspect(ctx, job)
	if refused := g.refused.Load(); refused != nil { // the facts may lack an answer of the server
		return git.Facts{}, refused
	}
	if spent, is := errors.AsType[*inspect.Spent](err); is {
		return git.Facts{}, &proxy.Refusal{Code: cove.Overloaded, Rule: ruleGit, Reason: plainMessage(spent.Err),
			Remedy: cove.ErrorHint(spent.Err)}
	}
	if err != nil {
		if ctx.Err() == nil {
			g.log.Error("a push cannot be looked into; it is refused", "sandbox", g.sandbox, "error", err)
		}
		return git.Facts{}, unanswerable("the push cannot be looked into", err)
	}
	return facts, nil
}

// refusePush answers like a server that refuses a push or, to a client that would not read that, as the gateway.
func (g *gitRequest) refusePush(c *smart.Commands, v git.Verdict) error {
	refused, _ := v.Refused()
	rule := cmp.Or(refused.Rule, ruleGit)
	if !c.CanReport() {
		return refuseGit(rule, refused.Explain())
	}
	lines := []string{"Cove refuses this push (rule: " + rule + ")"}
	for _, r := range v.Updates {
		lines = append(lines, "  "+r.Explain())
		if len(lines) > 10 {
			lines = append(lines, "  …")
			break
		}
	}
	return answerPush(c.Refuse(v, lines...), rule, fmt.Sprintf("%.200q: %s", refused.Update.Ref, refused.Reason))
}

func answerPush(body []byte, rule, reason string) *proxy.Answer {
	return &proxy.Answer{Status: http.StatusOK, Header: http.Header{"Content-Type": {smart.PushResult}}, Body: body,
		Rule: rule, Reason: reason}
}

// sayOfPush turns a refusal that is not about one of a push's updates, as of a push that cannot be looked into, into
// the answer to it: git shows the text of no other answer to a push.
func sayOfPush(c *smart.Commands, err error) error {
	f, ok := errors.AsType[*proxy.Refusal](err)
	if !ok || !c.CanReport() {
		return err
	}
	v := git.Verdict{Action: git.Deny}
	for _, u := range c.Updates {
		v.Updates = append(v.Updates, git.Ruling{Update: u, Action: git.Deny, Rule: f.Rule, Reason: f.Reason})
	}
	lines := []string{"Cove does not pass this push on (rule: " + f.Rule + "): " + f.Reason}
	if f.Remedy != "" {
		lines = append(lines, "  "+f.Remedy)
	}
	if f.After > 0 {
		lines = append(lines, fmt.Sprintf("  try again in %.0f s", math.Ceil(f.After.Seconds())))
	}
	return answerPush(c.Refuse(v, lines...), f.Rule, f.Reason)
}

// askPush asks for the approvals that updates of a push need, one by one.
func (g *gitRequest) askPush(ctx context.Context, v git.Verdict) git.Verdict {
	v.Action = git.Allow
	v.Updates = slices.Clone(v.Updates)
	for i, r := range v.Updates {
		if r.Action != git.Ask {
			continue
		}
		asked := g.request
		asked.Layer, asked.Method, asked.Path = policy.LayerHTTP, r.Operation, g.asked.Repo+"/"+r.Update.Ref
		verdict := g.holds.ask(ctx, asked, policy.Verdict{Action: policy.Ask, Rule: r.Rule,
			Reason: "git: " + r.Operation + " " + r.Update.Ref + ": " + r.Reason,
			Asks:   policy.Asks{Method: true, Path: true}}, true)
		if verdict.Action == policy.Allow {
			v.Updates[i].Action = git.Allow
			continue
		}
		v.Action, v.Updates[i].Action, v.Updates[i].Reason = git.Deny, git.Deny, verdict.Reason+": "+r.Reason
	}
	return v
}
