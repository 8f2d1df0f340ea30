// Package apispec converts between the types of the API and those of services and records. Its functions are pure: they
// convert units and judge nothing.
package apispec

import (
	"math"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/store"
)

// Spec returns a sandbox of the API as a cove.Spec.
func Spec(s api.Spec) cove.Spec {
	spec := cove.Spec{
		Engine: s.Engine, Image: s.Image, UserName: s.User, MountsAllow: s.MountsAllow, Env: s.Env, Labels: s.Labels,
		Shape: cove.Shape{Isolation: cove.Isolation(s.Isolation), NoExec: s.NoExec, Debuggers: s.Debuggers},
	}
	if s.Root {
		spec.User = cove.RootUser
	}
	if s.Limits != nil {
		spec.Limits = Limits(*s.Limits)
	}
	for _, m := range s.Mounts {
		spec.Mounts = append(spec.Mounts, cove.Mount{Source: m.Source, Target: m.Target, ReadOnly: m.ReadOnly})
	}
	return spec
}

// SpecOf is a cove.Spec as the API says it.
func SpecOf(spec cove.Spec) api.Spec {
	s := api.Spec{
		Engine: spec.Engine, Isolation: string(spec.Isolation), Image: spec.Image, Env: spec.Env, Labels: spec.Labels,
		MountsAllow: spec.MountsAllow,
		Limits:      new(LimitsOf(spec.Limits)), NoExec: spec.NoExec, Mounts: []api.Mount{},
		Root: spec.User.MayBeRoot(), User: spec.UserName, Debuggers: spec.Debuggers,
	}
	for _, m := range spec.Mounts {
		s.Mounts = append(s.Mounts, api.Mount{Source: m.Source, Target: m.Target, ReadOnly: m.ReadOnly})
	}
	return s
}

// Limits are limits of the API, in MiB and KiB, as limits in bytes. What does not
// fit saturates, and is then out of every range.
func Limits(l api.Limits) cove.Limits {
	return cove.Limits{
		Memory: scale(l.MemoryMB, 20), CPUs: l.CPUs, PIDs: l.PIDs, Disk: scale(l.DiskMB, 20), Inodes: l.Inodes,
		OpenFiles: l.OpenFiles, Stdout: scale(l.StdoutKB, 10), Stderr: scale(l.StderrKB, 10),
	}
}

// LimitsOf are limits as the API says them, rounded down. The API has the timeout elsewhere.
func LimitsOf(l cove.Limits) api.Limits {
	return api.Limits{
		MemoryMB: l.Memory >> 20, CPUs: l.CPUs, PIDs: l.PIDs, DiskMB: l.Disk >> 20, Inodes: l.Inodes,
		OpenFiles: l.OpenFiles, StdoutKB: l.Stdout >> 10, StderrKB: l.Stderr >> 10,
	}
}

// InForce returns the limits of a record, and its timeout in seconds; nil and 0 for one that has none.
func InForce(l cove.Limits) (*api.Limits, float64) {
	shown := LimitsOf(l)
	if shown == (api.Limits{}) {
		return nil, l.Timeout.Seconds()
	}
	return &shown, l.Timeout.Seconds()
}

// Duration is a time of the API. What does not fit saturates.
func Duration(s api.Seconds) time.Duration {
	switch v := float64(s) * float64(time.Second); {
	case v >= math.MaxInt64:
		return math.MaxInt64
	case v <= math.MinInt64:
		return math.MinInt64
	default:
		return time.Duration(v)
	}
}

// scale is v << bits without overflow.
func scale(v int64, bits uint) int64 {
	switch {
	case v > math.MaxInt64>>bits:
		return math.MaxInt64
	case v < math.MinInt64>>bits:
		return math.MinInt64
	}
	return v << bits
}

// Network returns a network of the API; nil is unspecified.
func Network(q *api.NetworkPermission) *cove.Network {
	if q == nil {
		return nil
	}
	n := Policy(q.GatewayPolicy)
	n.Enabled, n.Credentials, n.Providers, n.Budget = q.Enabled, q.Credentials, q.Providers, Budget(q.Budget)
	return &n
}

// Policy returns a policy of the API, as a network without credentials and models.
func Policy(p api.GatewayPolicy) cove.Network {
	n := cove.Network{Mode: cove.NetworkMode(p.Mode), Allow: p.Allow, Deny: p.Deny, Presets: p.Presets,
		PassThrough: p.PassThrough, AllowPR: p.AllowPR}
	for _, text := range p.Policies {
		n.Policies = append(n.Policies, cove.PolicyText(text))
	}
	return n
}

// NetworkOf returns a network as the API says it.
func NetworkOf(n cove.Network) api.NetworkPermission {
	q := api.NetworkPermission{Enabled: n.Enabled, Credentials: n.Credentials,
		GatewayPolicy: api.GatewayPolicy{Mode: string(n.Mode), Allow: n.Allow, Deny: n.Deny, Presets: n.Presets,
			PassThrough: n.PassThrough, AllowPR: n.AllowPR},
		ModelPermission: api.ModelPermission{Providers: n.Providers}}
	for _, text := range n.Policies {
		q.Policies = append(q.Policies, api.PolicyText(text))
	}
	if n.Budget != (cove.Budget{}) {
		q.Budget = new(api.ModelBudget(n.Budget))
	}
	return q
}

// Change returns a change of a network, which the API has without a mode.
func Change(c api.NetworkChange) store.NetworkChange {
	return store.NetworkChange{Allow: c.Allow, Deny: c.Deny, Presets: c.Presets, PassThrough: c.PassThrough}
}

// Budget is a budget of the API; nil is none.
func Budget(b *api.ModelBudget) cove.Budget {
	if b == nil {
		return cove.Budget{}
	}
	return cove.Budget(*b)
}

// Identity is an identity of the API; nil says nothing.
func Identity(i *api.GitIdentity) *cove.GitIdentity {
	if i == nil {
		return nil
	}
	return new(cove.GitIdentity(*i))
}

// Volumes returns the volumes of a request.
func Volumes(given []api.Volume) (all []cove.Volume) {
	for _, v := range given {
		all = append(all, cove.Volume{Target: v.Target, Memory: v.Memory, Size: v.SizeMB << 20})
	}
	return all
}

// VolumesOf returns the wire form of volumes.
func VolumesOf(given []cove.Volume) (all []api.Volume) {
	for _, v := range given {
		all = append(all, api.Volume{Target: v.Target, Memory: v.Memory, SizeMB: (v.Size + 1<<20 - 1) >> 20})
	}
	return all
}
