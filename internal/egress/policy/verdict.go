package policy

import "net/netip"

// Layer is where a connection or request is judged; each layer sees more of it.
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

// Request is what is judged. Which fields count depends on Layer.
type Request struct {
	Layer   Layer
	Host    Host
	Port    uint16
	Method  string // in capitals, as in HTTP
	Path    string // from CanonicalPath
	Address netip.Addr
	// Endpoint: the gateway itself asks, for a sandbox that has asked one of the
	// gateway's endpoints. Policies are about what sandboxes ask, and do not look.
	Endpoint bool
	// Inside, of LayerConnect: the request in it will be judged too, whatever
	// may pass through. Policies do not look.
	Inside bool
}

// Action is what becomes of a request. The order is that of reach.
type Action int

const (
	Deny Action = iota
	Ask         // hold it until somebody with a say has answered
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
	Rule        string // which rule decided: "policy.yaml:12", "preset github#3", "default"
	Reason      string // one sentence for a person or an agent
	Remedy      string // the exact command that would allow it; empty where none can
	PassThrough bool   // do not intercept TLS: SNI and address are all that is judged
	Whole       bool   // of an allowed connection: so is whatever may be asked in it
	Passable    bool   // of an allowed connection: it could be passed through, see Policy.Through
	Asks        Asks   // of Ask: what beside host and port an answer is about
}

// Asks are the parts of a request that rules which ask about it look at.
type Asks struct{ Method, Path, Address bool }
