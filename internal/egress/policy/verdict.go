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

func (l Layer) String() string { return [...]string{"dns", "connect", "http", "dial"}[l] }

// Request is the subject of a decision. The relevant fields depend on Layer.
type Request struct {
	Layer   Layer
	Host    Host
	Port    uint16
	Method  string // upper case
	Path    string // from CanonicalPath
	Address netip.Addr
	// Endpoint marks a request of the gateway, for a sandbox that used one of its endpoints. Policies ignore it.
	Endpoint bool
	// Inside, of LayerConnect, announces that the request inside is judged, even if it may pass. Policies ignore it.
	Inside bool
}

// Action is the decision on a request, in the order of reach.
type Action int

const (
	Deny Action = iota
	Ask         // hold the request until it is approved or refused
	Allow
)

func (a Action) String() string { return [...]string{"deny", "ask", "allow"}[a] }

// MarshalText encodes an action as its name.
func (a Action) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// Verdict is the answer to a Request, and its JSON the one of the command line and the API. The zero Verdict denies.
type Verdict struct {
	Action      Action `json:"verdict"`
	Rule        string `json:"rule"`                   // what decided: "policy.yaml:12", "preset github#3", "default"
	Reason      string `json:"reason"`                 // one sentence for a person or an agent
	Remedy      string `json:"remedy,omitempty"`       // the exact command that would allow it; empty if none can
	PassThrough bool   `json:"pass_through,omitempty"` // do not intercept TLS: SNI and address are the only fields judged
	Whole       bool   `json:"-"`                      // of an allowed connection: every request in it is allowed too
	Passable    bool   `json:"-"`                      // of an allowed connection: see Policy.Through
	Neighbour   bool   `json:"-"`                      // it is for a service of the sandbox's group: see Neighbour
	Asks        Asks   `json:"-"`                      // of Ask: the fields beside host and port that an answer covers
}

// Asks are the fields of a request that the asking rules look at.
type Asks struct{ Method, Path, Address bool }
