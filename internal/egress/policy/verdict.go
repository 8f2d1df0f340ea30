package policy

import "net/netip"

// Layer is a point at which a connection or request is judged; each layer sees more fields.
type Layer int

const (
	LayerDNS     Layer = iota // a name is looked up: Host
	LayerConnect              // TCP, CONNECT, SOCKS, SNI: Host and Port
	LayerHTTP                 // a request: Method and Path too
	LayerDial                 // the address about to be dialled: Host, Port and Address
)

func (l Layer) String() string {
	switch l {
	case LayerDNS:
		return "dns"
	case LayerConnect:
		return "connect"
	case LayerHTTP:
		return "http"
	case LayerDial:
		return "dial"
	}
	return "unknown"
}

// Request is the subject of a decision. The relevant fields depend on Layer.
type Request struct {
	Layer   Layer
	Host    Host
	Port    uint16
	Method  string // upper case
	Path    string // from CanonicalPath
	Address netip.Addr
	// Endpoint marks a request of the gateway itself, made for a sandbox that used one of the gateway's endpoints.
	// Policies ignore it.
	Endpoint bool
	// Inside, of LayerConnect, announces that the request in the connection is judged too, even if it may pass through.
	// Policies ignore it.
	Inside bool
}

// Action is the decision on a request, in the order of reach.
type Action int

const (
	Deny Action = iota
	Ask         // hold the request until it is approved or refused
	Allow
)

func (a Action) String() string {
	switch a {
	case Allow:
		return "allow"
	case Ask:
		return "ask"
	}
	return "deny"
}

// Verdict is the answer to a Request. The zero Verdict denies.
type Verdict struct {
	Action      Action
	Rule        string // the rule that decided: "policy.yaml:12", "preset github#3", "default"
	Reason      string // one sentence for a person or an agent
	Remedy      string // the exact command that would allow it; empty if none can
	PassThrough bool   // do not intercept TLS: SNI and address are the only fields judged
	Whole       bool   // of an allowed connection: every request in it is allowed too
	Passable    bool   // of an allowed connection: it could be passed through, see Policy.Through
	Asks        Asks   // of Ask: the fields beside host and port that an answer covers
}

// Asks are the fields of a request that the asking rules look at.
type Asks struct{ Method, Path, Address bool }
