package store

import (
	"context"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/share"
)

// Sandboxes remembers long-lived sandboxes, from the request for one until nothing of it is left.
type Sandboxes interface {
	// AddSandbox records a new one. Errors: Conflict when its id is known, when its owner has another sandbox or
	// checkout of its name, or when there is no room for it.
	AddSandbox(ctx context.Context, s Sandbox, room Room) error
	// Sandbox returns one. Errors: NotFound.
	Sandbox(ctx context.Context, id cove.SandboxID) (Sandbox, error)
	// Sandboxes lists all of them, newest first.
	Sandboxes(ctx context.Context) ([]Sandbox, error)
	// MoveSandbox moves a sandbox from a state to the next, with the reason; an empty reason means a request. Errors:
	// NotFound, Conflict when it is in another state, or when cove's table has no such transition.
	MoveSandbox(ctx context.Context, id cove.SandboxID, from, to cove.State, reason string) error
	// ChangeSandbox changes name and spec of one at once; other fields stay
	// whatever change does. Errors: NotFound, Conflict as AddSandbox's, change's.
	ChangeSandbox(ctx context.Context, id cove.SandboxID, change func(*Sandbox) error) error
	// TouchSandbox notes that one is used at a time; an earlier one than is known changes nothing. Errors: NotFound.
	TouchSandbox(ctx context.Context, id cove.SandboxID, at time.Time) error
	// RemoveSandbox forgets one that is being destroyed. Errors: NotFound, Conflict in every other state.
	RemoveSandbox(ctx context.Context, id cove.SandboxID) error
}

// Room bounds the sandboxes that there may be. A bound of zero is none.
type Room struct {
	All  int   // sandboxes and checkouts of all owners
	Own  int   // sandboxes and checkouts of the new one's owner
	Disk int64 // bytes: the sum of the limits of its sandboxes, and of its uploads
	Sent int64 // bytes that its uploads have of that
}

// Admits refuses one sandbox or checkout more of an owner with own of all. A key with a number of its own may have
// that many; other callers have a share. It is pure. Errors: Conflict.
func (r Room) Admits(owner cove.Principal, all, own int) error {
	shares := owner.IsCaller() && r.Own == 0
	if r.All > 0 && share.Room(int64(r.All), int64(all), int64(own), shares) < 1 {
		return TooManySandboxes(all)
	}
	return nil
}

// Fits refuses more bytes than an owner has left beside the limits of its sandboxes. It is pure. Errors: Conflict.
func (r Room) Fits(limits, more int64) error {
	if r.Disk > 0 && limits+r.Sent+more > r.Disk {
		return TooMuchDisk(more, limits, r.Sent, r.Disk)
	}
	return nil
}

// Sandbox is the record of a long-lived sandbox.
type Sandbox struct {
	ID         cove.SandboxID
	Name       string         // unique among its owner's
	Owner      cove.Principal // who made it
	State      cove.State
	Reason     string // for this state, unless it was requested; at most MaxDetail bytes
	Spec       SandboxSpec
	CreatedAt  time.Time
	LastUsedAt time.Time
}

// SandboxSpec describes a sandbox for each start: the spec, with every limit, a user and its engine's name, and the
// result of applying it.
type SandboxSpec struct {
	cove.Spec                  // WorkDir is absolute
	Digest    string           // of the image that it runs from; empty when no image is held
	ImageEnv  []string         // what that image asks to have in the environment
	Mode      cove.NetworkMode // in force since it was started
	Changes   []NetworkChange  // of its network, made while it ran, in their order
	// Repository is nil for an empty workspace.
	Repository *SandboxRepository
	Directory  string // of the workspace, on the host
	KeepWork   bool   // of one that is being destroyed: its checkout stays
	GitBeside  bool   // its image has no git, which runs in a companion
	// Shared is the key by which tasks of the same kind find a sandbox that they share; empty in any other.
	Shared    string
	Checkouts []Checkout // of a shared sandbox, beside its own; the oldest first
	// Services of its group, which it reaches by name. Group is the sandbox whose services they are, and Service describes
	// this one among them; zero of that sandbox itself, and of one without services.
	Services []Service      `json:",omitempty"`
	Group    cove.SandboxID `json:",omitempty"`
	Service  *cove.Service  `json:",omitempty"`
}

// Service is a service of a group: a sandbox with a record of its own.
type Service struct {
	Name string
	ID   cove.SandboxID
}

// Checkout is a repository checked out in a shared sandbox for one task. Its owner is the sandbox's.
type Checkout struct {
	ID         cove.SandboxID // of its workspace; as unique as a sandbox's
	Name       string         // unique among its owner's sandboxes and checkouts
	State      cove.State     // preparing, running (as far as its sandbox does), destroying or failed
	Reason     string         // of a failure
	Repository *SandboxRepository
	Place      string // its path inside
	WorkDir    string // absolute
	Labels     map[string]string
	CreatedAt  time.Time
	LastUsedAt time.Time
}

// SandboxRepository is the repository that a sandbox works on.
type SandboxRepository struct {
	Source   string   `json:"source"`           // as the request names it
	Remote   string   `json:"remote,omitempty"` // of pushes; empty without one
	Branch   string   `json:"branch"`           // the sandbox's own
	From     string   `json:"from"`             // the branch or commit that it began at
	Base     string   `json:"base"`             // id of the commit that it began at
	Worktree bool     `json:"worktree,omitempty"`
	Shared   []string // branches that every sandbox may read
}

// NetworkChange is a change of the network of a sandbox: additions, and another mode where there is one.
type NetworkChange struct {
	Allow       []string         `json:"allow,omitempty"`
	Deny        []string         `json:"deny,omitempty"`
	Presets     []string         `json:"presets,omitempty"`
	PassThrough []string         `json:"pass_through,omitempty"`
	Mode        cove.NetworkMode `json:"mode,omitempty"`
}

// Network returns the change as a network.
func (c NetworkChange) Network() cove.Network {
	return cove.Network{Allow: c.Allow, Deny: c.Deny, Presets: c.Presets, PassThrough: c.PassThrough, Mode: c.Mode}
}
