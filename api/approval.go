package api

import "time"

// Hold is a request that waits for an answer on its way out of a sandbox, or several that are asked about together.
type Hold struct {
	ID        string    `json:"id" example:"ho_0123456789abcdefghjkmnpqrs"`
	Execution string    `json:"execution,omitempty" example:"ex_0123456789abcdefghjkmnpqrs"`
	Client    string    `json:"client,omitempty" doc:"The client that it is of, where the server is a gateway of its own" example:"builder"`
	Host      string    `json:"host" doc:"A name or an address"`
	Port      uint16    `json:"port"`
	Method    string    `json:"method,omitempty" doc:"Of all of them; absent for connections that are not looked into"`
	Path      string    `json:"path,omitempty" doc:"Of the one that waits longest, without its query"`
	Address   string    `json:"address,omitempty" doc:"A private address that the host leads to, when that is the question"`
	About     string    `json:"about" doc:"What an answer beyond once counts for" example:"POST api.example.com:443"`
	Count     int       `json:"count" doc:"Requests that wait"`
	Rule      string    `json:"rule" doc:"The rule that asks"`
	Reason    string    `json:"reason" doc:"Its note, if it has one"`
	Since     time.Time `json:"since"`
	Until     time.Time `json:"until" doc:"When the one that waits longest is denied, or its execution out of time"`
}

// HoldList is the answer of GET /network/holds, and the data of the SSE event holds: the oldest first.
type HoldList struct {
	Holds []Hold `json:"holds" nullable:"false"`
}

// HoldAnswer answers what waits: POST /network/holds/{id}.
type HoldAnswer struct {
	Allow bool    `json:"allow"`
	Scope string  `json:"scope,omitempty" enum:"once,sandbox,policy" doc:"once (default of what is allowed): what waits now; sandbox (default of what is denied): everything the same that this sandbox asks; policy: and every sandbox that was started with the same policy"`
	For   Seconds `json:"for,omitempty" doc:"How long it counts; by default as long as the sandbox lives, and for a policy 30 days"`
}

// Approval is an answer that is remembered for a policy.
type Approval struct {
	ID     string    `json:"id" example:"ap_0123456789abcdefghjkmnpqrs"`
	Policy string    `json:"policy" doc:"Digest of the policy that it is for"`
	About  string    `json:"about" doc:"What is approved" example:"POST api.example.com:443"`
	Rule   string    `json:"rule" doc:"The rule that asked"`
	Who    string    `json:"who" doc:"Who has approved it. An approval by local counts for all callers, another caller's for its own sandboxes"`
	Time   time.Time `json:"time"`
	Until  time.Time `json:"until"`
}

// ApprovalList is the answer of GET /network/approvals, newest first.
type ApprovalList struct {
	Approvals []Approval `json:"approvals" nullable:"false"`
}
