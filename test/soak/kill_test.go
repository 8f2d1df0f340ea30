package soak

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/test/await"
	"github.com/cove-sandbox/cove/test/holdings"
)

// TestKillRounds: a mixed load, while the server is killed again and again: executions, commands in a long-lived
// sandbox and typing at its terminal, sandboxes and uploads that come and go, agents' runs, requests that wait for an
// approval. Nothing that was acknowledged is lost, nothing is said that is not so, the audit log has a line of all of
// it, and in the end the machine holds what it held.
func TestKillRounds(t *testing.T) {
	engines := []string{chosen}
	if long == 0 {
		engines = []string{native, docker}
	}
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) { killRounds(t, engine) })
	}
}

// patience is how much longer a busy machine may take until something of each kind is acknowledged.
const patience = 3 * time.Minute

// killRounds is TestKillRounds on an engine.
func killRounds(t *testing.T, engine string) {
	t.Setenv("COVE_GATEWAY_PROVIDERS", newModels(t))
	l, sent := newLab(t, engine), newFolder(t)
	var usual map[string]int // descriptors of a server
	for range 2 {            // what is made once is made before the machine is looked at
		l.serve()
		if err := l.execute(t.Context(), "first"); err != nil {
			t.Fatal(err)
		}
		if _, err := l.create(t.Context(), api.SandboxRequest{Name: "first"}); err != nil {
			t.Fatal(err)
		}
		if err := l.destroy(t.Context(), "first"); err != nil {
			t.Fatal(err)
		}
		l.drain()
		usual = l.descriptors()
		if _, err := l.cove("server", "stop"); err != nil {
			t.Fatal(err)
		}
	}
	before, kernel := l.holdings(), holdings.KernelMemory()
	l.serve()
	log, err := l.create(t.Context(), api.SandboxRequest{Name: "log"})
	if err != nil {
		t.Fatal(err)
	}
	l.log = log.ID
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var load sync.WaitGroup
	var number atomic.Int64
	for _, part := range []func(n int){l.executes(ctx), l.executes(ctx), l.writes(ctx), l.boxes(ctx),
		l.uploads(ctx, sent), l.types(ctx), l.works(ctx), l.asks(ctx)} {
		load.Go(func() {
			for ctx.Err() == nil {
				part(int(number.Add(1)))
			}
		})
	}
	rounds, limit, longer := 0, max(long, 20*time.Second), time.Duration(1)
	for began := time.Now(); ; rounds++ {
		time.Sleep(longer * l.life()) // sleep: the server dies at a random moment of the load
		l.kill()
		l.serve()
		if took := time.Since(began); took > limit+patience || took > limit && l.oracle.hasAll() {
			break
		} else if took > limit {
			longer++ // the machine is busy: more time to acknowledge what has not been yet
		}
	}
	stop()
	load.Wait()
	l.check()
	acknowledged := l.oracle.acknowledged()
	t.Logf("%d kills; acknowledged: %v", rounds, acknowledged)
	for kind, n := range acknowledged {
		if n == 0 {
			t.Errorf("no %s were acknowledged", kind)
		}
	}
	for id, p := range l.oracle.uploads {
		if p == there {
			l.takes(t.Context(), sent, id, "late"+id[len("up_"):])
		}
	}
	if err := l.destroyAll(); err != nil {
		t.Error(err)
	}
	l.drain()
	l.releases(usual)
	await.That(t, "the server forgets those that were killed", func() bool {
		known, err := instance.List(l.runDir())
		return err == nil && !slices.ContainsFunc(known, func(id cove.InstanceID) bool {
			return !instance.Alive(l.runDir(), id)
		})
	})
	if _, err := l.cove("server", "stop"); err != nil {
		t.Error(err)
	}
	l.holdsNoMore(before)
	l.kernelSettles(kernel, len(l.oracle.executions)+len(l.oracle.runs)+acknowledged["sandboxes"])
}

// life returns how long the next server lives. A container takes longer to make than a sandbox of the native engine,
// and what is acknowledged takes several.
func (l *lab) life() time.Duration {
	if l.engine == docker {
		return 3*time.Second + rand.N(6*time.Second)
	}
	return time.Second + rand.N(2*time.Second)
}

// check holds what the server says against the oracle.
func (l *lab) check() {
	l.t.Helper()
	ctx := context.Background()
	await.That(l.t, "the executions that clients have left end", func() bool {
		page, err := l.client.List(ctx, client.ListOptions{Status: api.StatusRunning})
		if err != nil {
			l.t.Fatal(err)
		}
		return len(page.Executions) == 0
	})
	var history []api.Execution
	var err error
	o := client.ListOptions{Limit: 500}
	for more := true; more; more = o.Cursor != "" {
		page, err := l.client.List(ctx, o)
		if err != nil {
			l.t.Fatal(err)
		}
		history, o.Cursor = append(history, page.Executions...), page.NextCursor
	}
	for i, e := range history {
		get := func() api.Execution {
			if history[i], err = l.client.Get(ctx, e.ID); err != nil {
				l.t.Fatal(err)
			}
			return history[i]
		}
		if l.oracle.executions[e.ID].result {
			get()
		}
		if e.Status == api.StatusRunning { // a request on its way when its client left may begin late
			await.That(l.t, e.ID+" ends", func() bool { return get().Status != api.StatusRunning })
		}
	}
	for _, wrong := range l.oracle.executionsWrong(history) {
		l.t.Error(wrong)
	}
	l.checkRuns(ctx) // their sandboxes go with them
	list, err := l.client.Sandboxes(ctx)
	if err != nil {
		l.t.Fatal(err)
	}
	wrong := l.oracle.sandboxesWrong(list.Sandboxes)
	wrong = append(wrong, presenceWrong("upload", l.oracle.uploads, l.waiting())...)
	approvals, err := l.client.Approvals(ctx)
	if err != nil {
		l.t.Fatal(err)
	}
	approved := map[string]bool{}
	for _, a := range approvals {
		approved[a.About] = true
	}
	wrong = append(wrong, presenceWrong("approval", l.oracle.approvals, approved)...)
	for _, file := range slices.Sorted(maps.Keys(l.oracle.lines)) {
		var content bytes.Buffer
		if _, err := l.client.Exec(ctx, "log", api.ExecRequest{Args: []string{"cat", "/workspace/" + file}},
			client.Stream{Stdout: &content}); err != nil {
			l.t.Fatal(err)
		}
		wrong = append(wrong, l.oracle.linesWrong(file, content.String())...)
	}
	if l.terminal != "" {
		open, err := l.client.Terminals(ctx, "log")
		at := slices.IndexFunc(open, func(t api.Terminal) bool { return t.ID == l.terminal && t.ExitCode == nil })
		if err != nil || at < 0 {
			wrong = append(wrong, fmt.Sprintf("the terminal %s does not run on: %+v, %v", l.terminal, open, err))
		}
	}
	for _, w := range append(wrong, l.auditWrong(ctx)...) {
		l.t.Error(w)
	}
}

// checkRuns waits for the end of the agents' runs, and holds them and their events against the oracle.
func (l *lab) checkRuns(ctx context.Context) {
	l.t.Helper()
	var all []api.Run
	for q := (client.RunQuery{Limit: 100}); ; {
		page, err := l.client.Runs(ctx, q)
		if err != nil {
			l.t.Fatal(err)
		}
		all = append(all, page.Runs...)
		if q.Before = page.Next; q.Before == "" {
			break
		}
	}
	events := map[string][]string{}
	for i, r := range all {
		end, stop := context.WithTimeout(ctx, 2*time.Minute)
		last, err := l.client.FollowRun(end, r.ID, client.RunStream{Message: func(m api.Message) error {
			events[r.ID] = append(events[r.ID], event(m))
			return nil
		}})
		stop()
		if err != nil {
			l.t.Errorf("following %s: %v", r.ID, err)
			continue
		}
		all[i] = last
	}
	for _, wrong := range l.oracle.runsWrong(all, events) {
		l.t.Error(wrong)
	}
}

// auditWrong reads the audit log, and holds it against the oracle.
func (l *lab) auditWrong(ctx context.Context) []string {
	l.t.Helper()
	var log []api.AuditRecord
	for o := (client.AuditOptions{Limit: 500}); ; {
		page, err := l.client.Audit(ctx, o)
		if err != nil {
			l.t.Fatal(err)
		}
		log = append(log, page.Records...)
		if o.Cursor = page.NextCursor; o.Cursor == "" {
			break
		}
	}
	verified, err := l.client.VerifyAudit(ctx)
	if err != nil {
		l.t.Fatal(err)
	}
	return l.oracle.auditWrong(log, verified)
}
