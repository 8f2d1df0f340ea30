package gateway

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/netip"
	"strings"
	"sync"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/dns"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
)

// dnsView is a route as a dns.Client.
type dnsView struct{ *Route }

// Resolve implements dns.Client. A name that a rule asks about exists, and is looked up only after an answer.
func (v dnsView) Resolve(ctx context.Context, name policy.Host) error {
	if name.Name() == policy.GatewayService || v.neighbours.has(name) ||
		v.asks(policy.Request{Layer: policy.LayerDNS, Host: name}) {
		return nil
	}
	var minting sync.WaitGroup
	defer minting.Wait()
	minting.Go(func() { v.trust.Leaf(name) }) // which a connection will need, and which takes no longer
	return v.lookups.exists(ctx, name)
}

func (v dnsView) Asked(name, kind string, verdict policy.Verdict, stage decision.Stage, refused string) {
	if refused != "" && stage == decision.StagePolicy {
		v.presets.begin() // for the connection that follows
	}
	v.record(decision.Decision{
		Time: v.clock.Now(), Entry: decision.EntryDNS, Host: strings.ToLower(strings.TrimSuffix(name, ".")),
		Method: kind, Verdict: verdictOf(refused == "" || stage == decision.StageUpstream), Stage: stage,
		Rule: verdict.Rule, Reason: refused, Remedy: verdict.Remedy,
	})
}

// proxyView is a route as a proxy.Sandbox.
type proxyView struct{ *Route }

func (v proxyView) ID() cove.SandboxID { return v.sandbox }

// ruleNames bounds the names that are looked up: each reaches its domain's servers, whatever requests follow.
const ruleNames = "gateway: names"

func (v proxyView) Decide(ctx context.Context, r policy.Request) policy.Verdict {
	verdict := v.Route.Decide(ctx, r)
	if verdict.Action == policy.Allow && r.Layer == policy.LayerConnect && r.Host.Name() != "" &&
		!v.filter.Permit(r.Host) {
		return policy.Verdict{Rule: ruleNames, Reason: dns.TooManyNames}
	}
	return v.withPreset(r, verdict)
}

// withPreset names a preset in the remedy of a denial for lack of a rule, where one has the host.
func (v proxyView) withPreset(r policy.Request, verdict policy.Verdict) policy.Verdict {
	p := v.policy.Load()
	if verdict.Action != policy.Deny || verdict.Rule != "default" || verdict.Remedy == "" || policy.Names(p, r.Host) {
		return verdict
	}
	if name := v.presets.of(r.Host, r.Port); name != "" {
		verdict.Remedy = policy.WithPreset(p, name)
	}
	return verdict
}

// Early implements proxy.Sandbox. A connection is not begun ahead of its request where a stage of the pipeline may
// refuse it, or where it was approved or is the gateway's own.
func (v proxyView) Early(r policy.Request) bool {
	verdict := v.judge(r)
	if verdict.Action != policy.Allow || r.Layer != policy.LayerConnect {
		return verdict.Action == policy.Allow
	}
	if !verdict.Whole || v.github.Has(r.Host) || v.gitHost(r.Host) || !v.breakers.closed(upstreamOf(r)) {
		return false
	}
	return v.rates.ahead(upstreamOf(r)) == nil
}

func (v proxyView) Pinned(a netip.Addr) (policy.Host, bool) { return v.names.Name(a) }

func (v proxyView) Found(name policy.Host) []netip.Addr { return v.lookups.take(name) }

func (v proxyView) Leaf(h policy.Host) (*tls.Certificate, error) { return v.trust.Leaf(h) }

// HTTP2 implements proxy.Sandbox. A git before 2.44 hangs for good when curl sends a request again after the stream has
// ended, as some do in HTTP/2: one upload of more than a mebibyte in twenty on a busy machine, with git 2.39 and
// libcurl 7.88.
func (v proxyView) HTTP2(h policy.Host) bool { return !v.gitHost(h) }

func (v proxyView) Prepare(r policy.Request, h *http.Request) (proxy.Passage, error) {
	if v.neighbours.has(r.Host) { // nothing is set on what stays within the group
		return enter(nil, r, h)
	}
	return enter(v.pipeline, r, h)
}

func (v proxyView) Endpoint(r policy.Request, h *http.Request) (*proxy.Origin, *proxy.Answer) {
	return endpoints{v.models, v.credentials, v.placeholders}.serve(r, h)
}

func (v proxyView) Record(e proxy.Event) {
	d := decisionOf(e)
	if d.Stage == decision.StagePolicy && v.judge(e.Request).Action == policy.Ask {
		d.Stage = decision.StageApproval
	}
	if d.Verdict == decision.Deny && e.Verdict.Passable {
		d.Remedy = v.policy.Load().Through(e.Request.Host, e.Request.Port)
	}
	if e.Untrusted && v.intercepted(e.Request) == "" {
		place := placeOf(d.Host, d.Port)
		d.Reason = distrusted(place)
		d.Remedy = policy.Unjudged(v.policy.Load(), place)
		v.addDenied(egress.Denial{Place: place, Flag: "--pass-through " + place, Untrusted: true})
	}
	v.record(d)
}
