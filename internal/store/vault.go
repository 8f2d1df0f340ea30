package store

import (
	"context"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/approval"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/model"
)

// Vault holds a Store for the services, which reach its records by naming a
// principal, and in no other way. The zero Vault holds nothing.
type Vault struct{ store Store }

// NewVault returns a Vault of what a Store holds.
func NewVault(s Store) Vault { return Vault{s} }

// For returns the records that p sees. Work that no caller asks for names cove.System.
func (v Vault) For(p cove.Principal) Records { return Records{v.store, p} }

// Records is the part of a Store that one principal sees, changes and adds to. Its methods are those of Store. Another
// principal's record is NotFound, and lists leave it out. Operations on the records of all are Forbidden to a principal
// that does not see all.
type Records struct {
	store Store
	p     cove.Principal
}

// only returns the client of the records that p sees, in the form of queries; empty means all clients. some is false if
// p sees no records: p is zero, or records cannot tell it from another principal.
func (r Records) only() (client string, some bool) {
	if r.p.SeesAll() {
		return "", true
	}
	client = r.p.String()
	return client, client != "" && cove.ParsePrincipal(client) == r.p
}

// all refuses a principal that does not see every record.
func (r Records) all() error {
	if r.p.SeesAll() {
		return nil
	}
	return cove.Errorf(cove.Forbidden, "the records of others are for the machine's owner")
}

// Begin records an execution of p's; see Store.
func (r Records) Begin(ctx context.Context, e Execution) error {
	e.Owner = r.p
	return r.store.Begin(ctx, e)
}

// Finish records how one of p's ended; see Store.
func (r Records) Finish(ctx context.Context, e Execution, record Record) error {
	if !r.p.Sees(e.Owner) {
		return NoExecution(e.ID)
	}
	record.Who = r.p.String()
	return r.store.Finish(ctx, e, record)
}

// Get returns one of p's; see Store.
func (r Records) Get(ctx context.Context, id cove.ExecutionID) (Execution, error) {
	e, err := r.store.Get(ctx, id)
	if err == nil && !r.p.Sees(e.Owner) {
		return Execution{}, NoExecution(id)
	}
	return e, err
}

// List returns a page of p's; see Store.
func (r Records) List(ctx context.Context, q Query) (Page, error) {
	only, some := r.only()
	if !some {
		return Page{}, nil
	}
	if only != "" {
		q.Client = only
	}
	return r.store.List(ctx, q)
}

// AddCPU adds to what p has used; see Store.
func (r Records) AddCPU(ctx context.Context, at time.Time, used time.Duration) error {
	return r.store.AddCPU(ctx, r.p.String(), at, used)
}

// CPUTime returns what p itself has used; see Store.
func (r Records) CPUTime(ctx context.Context, since time.Time) (time.Duration, error) {
	return r.store.CPUTime(ctx, r.p.String(), since)
}

// ModelsUsed returns what p itself has used of models; see Store.
func (r Records) ModelsUsed(ctx context.Context) ([]model.ProviderUsage, error) {
	return r.store.ModelsUsed(ctx, r.p.String())
}

// UseModels adds to what p has used of models; see Store.
func (r Records) UseModels(ctx context.Context, used ...model.ProviderUsage) error {
	return r.store.UseModels(ctx, r.p.String(), used...)
}

// Abandon is for principals that see all; see Store.
func (r Records) Abandon(ctx context.Context, record Record, dead func(cove.InstanceID) bool) (int, error) {
	if err := r.all(); err != nil {
		return 0, err
	}
	return r.store.Abandon(ctx, record, dead)
}

// Prune is for principals that see all; see Store.
func (r Records) Prune(ctx context.Context, before time.Time) (int, error) {
	if err := r.all(); err != nil {
		return 0, err
	}
	return r.store.Prune(ctx, before)
}

// Check is for principals that see all; see Store.
func (r Records) Check(ctx context.Context) error {
	if err := r.all(); err != nil {
		return err
	}
	return r.store.Check(ctx)
}

// Append records what p did; see Store.
func (r Records) Append(ctx context.Context, record Record) error {
	record.Who = r.p.String()
	return r.store.Append(ctx, record)
}

// Audit returns a page of what p did; see Store. The hashes are over the records of others, too, and would confirm a
// guess at them: a principal that does not see all gets none.
func (r Records) Audit(ctx context.Context, q AuditQuery) (AuditPage, error) {
	only, some := r.only()
	if !some {
		return AuditPage{}, nil
	}
	if only == "" {
		return r.store.Audit(ctx, q)
	}
	q.Who = only
	page, err := r.store.Audit(ctx, q)
	for i := range page.Records {
		page.Records[i].Hash = ""
	}
	return page, err
}

// Verify is for principals that see all; see Store.
func (r Records) Verify(ctx context.Context) (Verification, error) {
	if err := r.all(); err != nil {
		return Verification{}, err
	}
	return r.store.Verify(ctx)
}

// AppendDecisions adds those of several principals' sandboxes, and is for principals that see all; see Decisions.
func (r Records) AppendDecisions(ctx context.Context, keep int, all ...decision.Decision) error {
	if err := r.all(); err != nil {
		return err
	}
	return r.store.AppendDecisions(ctx, keep, all...)
}

// ListDecisions returns a page of those of p's sandboxes; see Decisions.
func (r Records) ListDecisions(ctx context.Context, q DecisionQuery) (DecisionPage, error) {
	only, some := r.only()
	if !some {
		return DecisionPage{}, nil
	}
	if only != "" {
		q.Client = only
	}
	return r.store.ListDecisions(ctx, q)
}

// DecisionsAfter returns those of p's sandboxes; see Decisions.
func (r Records) DecisionsAfter(ctx context.Context, seq int64, limit int) ([]decision.Decision, error) {
	only, some := r.only()
	if !some {
		return nil, nil
	}
	return r.store.DecisionsAfter(ctx, only, seq, limit)
}

// Approve remembers an approval that p gives; see Approvals.
func (r Records) Approve(ctx context.Context, a approval.Approval) error {
	a.Who = r.p
	return r.store.Approve(ctx, a)
}

// Approved reports whether a subject has been approved for p's sandboxes: by p, or
// by the machine's owner, whose approvals count in every sandbox; see Approvals.
func (r Records) Approved(ctx context.Context, policy string, s approval.Subject, at time.Time) (bool, error) {
	who := []cove.Principal{cove.MachineOwner()}
	if _, some := r.only(); some {
		who = append(who, r.p)
	}
	return r.store.Approved(ctx, policy, s, who, at)
}

// Approvals lists those that p has given; see Approvals.
func (r Records) Approvals(ctx context.Context, at time.Time) ([]approval.Approval, error) {
	only, some := r.only()
	if !some {
		return nil, nil
	}
	return r.store.Approvals(ctx, only, at)
}

// Revoke forgets one that p has given; see Approvals.
func (r Records) Revoke(ctx context.Context, id cove.ApprovalID) error {
	only, some := r.only()
	if !some {
		return NoApproval(id)
	}
	return r.store.Revoke(ctx, only, id)
}

// PutGatewayClient is for principals that see all, as the clients of a gateway are
// the machine owner's; see GatewayClients.
func (r Records) PutGatewayClient(ctx context.Context, c GatewayClient) error {
	if err := r.all(); err != nil {
		return err
	}
	return r.store.PutGatewayClient(ctx, c)
}

// GatewayClients is for principals that see all; see GatewayClients.
func (r Records) GatewayClients(ctx context.Context) ([]GatewayClient, error) {
	if err := r.all(); err != nil {
		return nil, err
	}
	return r.store.GatewayClients(ctx)
}

// RemoveGatewayClient is for principals that see all; see GatewayClients.
func (r Records) RemoveGatewayClient(ctx context.Context, name string) error {
	if err := r.all(); err != nil {
		return err
	}
	return r.store.RemoveGatewayClient(ctx, name)
}

// AddSandbox records a new one of p's; see Sandboxes.
func (r Records) AddSandbox(ctx context.Context, s Sandbox, room Room) error {
	s.Owner = r.p
	return r.store.AddSandbox(ctx, s, room)
}

// Sandbox returns one of p's; see Sandboxes.
func (r Records) Sandbox(ctx context.Context, id cove.SandboxID) (Sandbox, error) {
	s, err := r.store.Sandbox(ctx, id)
	if err == nil && !r.p.Sees(s.Owner) {
		return Sandbox{}, NoSandbox(id)
	}
	return s, err
}

// Sandboxes lists p's; see Sandboxes.
func (r Records) Sandboxes(ctx context.Context) ([]Sandbox, error) {
	all, err := r.store.Sandboxes(ctx)
	return slices.DeleteFunc(all, func(s Sandbox) bool { return !r.p.Sees(s.Owner) }), err
}

// hasSandbox refuses a sandbox that is not p's. Owners do not change.
func (r Records) hasSandbox(ctx context.Context, id cove.SandboxID) error {
	if r.p.SeesAll() {
		return nil
	}
	_, err := r.Sandbox(ctx, id)
	return err
}

// MoveSandbox moves one of p's; see Sandboxes.
func (r Records) MoveSandbox(ctx context.Context, id cove.SandboxID, from, to cove.State, reason string) error {
	if err := r.hasSandbox(ctx, id); err != nil {
		return err
	}
	return r.store.MoveSandbox(ctx, id, from, to, reason)
}

// ChangeSandbox changes one of p's; see Sandboxes.
func (r Records) ChangeSandbox(ctx context.Context, id cove.SandboxID, change func(*Sandbox) error) error {
	if err := r.hasSandbox(ctx, id); err != nil {
		return err
	}
	return r.store.ChangeSandbox(ctx, id, change)
}

// TouchSandbox notes a use of one of p's; see Sandboxes.
func (r Records) TouchSandbox(ctx context.Context, id cove.SandboxID, at time.Time) error {
	if err := r.hasSandbox(ctx, id); err != nil {
		return err
	}
	return r.store.TouchSandbox(ctx, id, at)
}

// RemoveSandbox forgets one of p's; see Sandboxes.
func (r Records) RemoveSandbox(ctx context.Context, id cove.SandboxID) error {
	if err := r.hasSandbox(ctx, id); err != nil {
		return err
	}
	return r.store.RemoveSandbox(ctx, id)
}

// AddRun records one that p begins; see Runs.
func (r Records) AddRun(ctx context.Context, run Run) error {
	run.CreatedBy = r.p.String()
	return r.store.AddRun(ctx, run)
}

// Run returns one of p's; see Runs.
func (r Records) Run(ctx context.Context, id cove.RunID) (Run, error) {
	run, err := r.store.Run(ctx, id)
	if err == nil && !r.p.Sees(run.Owner()) {
		return Run{}, NoRun(id)
	}
	return run, err
}

// Runs returns a page of p's; see Runs.
func (r Records) Runs(ctx context.Context, q RunQuery) (RunPage, error) {
	only, some := r.only()
	if !some {
		return RunPage{}, nil
	}
	if only != "" {
		q.Client = only
	}
	return r.store.Runs(ctx, q)
}

// hasRun refuses a run that is not p's. Owners do not change.
func (r Records) hasRun(ctx context.Context, id cove.RunID) error {
	if r.p.SeesAll() {
		return nil
	}
	_, err := r.Run(ctx, id)
	return err
}

// ChangeRun changes one of p's; see Runs.
func (r Records) ChangeRun(ctx context.Context, id cove.RunID, change func(*Run) error) error {
	if err := r.hasRun(ctx, id); err != nil {
		return err
	}
	return r.store.ChangeRun(ctx, id, change)
}

// RemoveRun forgets one of p's; see Runs.
func (r Records) RemoveRun(ctx context.Context, id cove.RunID) error {
	if err := r.hasRun(ctx, id); err != nil {
		return err
	}
	return r.store.RemoveRun(ctx, id)
}

// NoExecution is the error about an execution that is not there, or another's.
func NoExecution(id cove.ExecutionID) error {
	return cove.Errorf(cove.NotFound, "no execution %.64q", id)
}

// TooManySandboxes is the error about one more sandbox or checkout than are allowed.
func TooManySandboxes(known int) error {
	return cove.Errorf(cove.Conflict, "there are %d sandboxes, and no more are allowed", known).
		WithHint("destroy one that is not needed, or raise sandbox.max_lasting")
}

// TooManyOwn is the error about one more sandbox or checkout than an API key may have.
func TooManyOwn(known int) error {
	return cove.Errorf(cove.Conflict, "this API key has %d sandboxes, and may have no more", known).
		WithHint("destroy one that is not needed, or raise sandboxes of the key in the server's configuration")
}

// TooMuchDisk is the error about a sandbox or an upload that needs more bytes of the disk than are left to an API key
// beside the limits of its sandboxes and what it has sent.
func TooMuchDisk(needs, limits, sent, most int64) error {
	return cove.Errorf(cove.Conflict, "this needs %s of the disk, and this API key has %s left of %s: "+
		"the limits of its sandboxes are %s together, and its uploads have %s", mib(needs, math.Ceil),
		mib(max(0, most-limits-sent), math.Floor), mib(most, math.Floor), mib(limits, math.Ceil), mib(sent, math.Ceil)).
		WithHint("destroy one, ask for less (limits.disk_mb), or raise disk_mb of the key in the server's configuration")
}

// mib formats bytes to a tenth of a MiB.
func mib(bytes int64, round func(float64) float64) string {
	return strconv.FormatFloat(round(float64(bytes)/(1<<20)*10)/10, 'f', -1, 64) + " MiB"
}

// NoSandbox is the error about a sandbox that is not there, or another's.
func NoSandbox(id cove.SandboxID) error {
	return cove.Errorf(cove.NotFound, "there is no sandbox %.64q", id)
}

// NoRun is the error about a run that is not there, or another's.
func NoRun(id cove.RunID) error {
	return cove.Errorf(cove.NotFound, "there is no run %.64q", id).
		WithHint("\"cove runs list\" shows those that there are")
}

// NoApproval is the error about an approval that is not there, or another's.
func NoApproval(id cove.ApprovalID) error {
	return cove.Errorf(cove.NotFound, "no approval %.64q is remembered", id).WithHint("\"cove approvals\" lists them")
}
