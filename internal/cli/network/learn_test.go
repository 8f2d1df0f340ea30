package network

import (
	"testing"

	"github.com/cove-sandbox/cove/api"
)

func TestProposal(t *testing.T) {
	const upstream, deny = api.StageUpstream, api.VerdictDeny
	got, err := proposal([]string{"ex_1", "ex_2"}, []api.Decision{
		{Entry: "dns", Host: "named.example", Method: "A", Verdict: deny, Stage: "policy", Count: 2},
		{Entry: "dns", Host: "text.example", Method: "TXT", Verdict: deny, Stage: "policy", Count: 1},
		{Entry: "dns", Host: "fast.example", Method: "A", Verdict: deny, Stage: "rate", Count: 1},
		{Entry: "dns", Host: "met.example", Method: "A", Verdict: "allow", Stage: upstream, Count: 1},
		{Entry: "dns", Host: "no host!", Method: "A", Verdict: deny, Stage: "policy", Count: 1},
		{Protocol: "https", Host: "api.example", Port: 443, Method: "GET", Path: "/v1/…/items", Verdict: "allow",
			Stage: upstream, Count: 3},
		{Protocol: "https", Host: "api.example", Port: 443, Method: "POST", Path: "/v1/items", Verdict: deny,
			Stage: "policy", Count: 1},
		{Protocol: "https", Host: "api.example", Port: 443, Method: "GET", Path: "/fast", Verdict: deny,
			Stage: "rate", Count: 1},
		{Protocol: "http", Host: "bad.example", Port: 80, Verdict: deny, Stage: "protocol", Count: 1},
		{Protocol: "tls", Host: "denied.example", Port: 443, Verdict: deny, Stage: "policy", Count: 1},
		{Protocol: "tls", Host: "passed.example", Port: 443, Verdict: "allow", Stage: upstream, Count: 1},
		{Protocol: "tls", Host: "pinned.example", Port: 443, Verdict: "allow", Stage: "protocol",
			Reason: "TLS with the client: bad certificate", Count: 1},
		{Protocol: "tcp", Host: "git.example", Port: 22, Verdict: deny, Stage: "protocol", Count: 1},
		{Entry: "connect", Host: "tunnel.example", Port: 8443, Verdict: deny, Stage: "policy", Count: 1},
		{Protocol: "https", Host: "inside.example", Port: 443, Method: "GET", Path: "/", Verdict: deny, Stage: "dial",
			Reason: "inside.example is at 10.0.0.1", Count: 1},
		{Protocol: "http", Host: "gateway.cove.internal", Port: 80, Method: "POST", Path: "/proxy/v1/messages",
			Verdict: "allow", Stage: upstream, Count: 1},
		{Verdict: api.VerdictLost, Reason: "5 decisions were not recorded", Count: 5},
	})
	const want = `# Proposed by "cove policy learn" from what was tried by
# ex_1, ex_2.
# What was denied is in it too: read it before you allow it.
# Note: TLS to pinned.example:443 was not intercepted: TLS with the client: bad certificate; a rule with pass_through would not look into it
# Note: inside.example is at 10.0.0.1; a rule by cidrs would allow it
# Note: 5 decisions were not recorded; this may be too little
mode: limited
rules:
  # tried 4 times: GET /v1/0/items, GET /fast
  - hosts: [api.example]
    ports: [443]
    methods: [GET]
    paths: [/fast, /v1/*/items]
  # tried once, denied once: POST /v1/items
  - hosts: [api.example]
    ports: [443]
    methods: [POST]
    paths: [/v1/items]
  # tried once, denied once: denied.example:443
  - hosts: [denied.example]
    ports: [443]
  # tried once, denied once: git.example:22
  - hosts: [git.example]
    ports: [22]
    pass_through: true
  # tried once, denied once: GET /
  - hosts: [inside.example]
    ports: [443]
    methods: [GET]
    paths: [/]
  # looked up 2 times and denied; what for was not seen
  - hosts: [named.example]
  # tried once: passed.example:443
  - hosts: [passed.example]
    ports: [443]
    pass_through: true
  # tried once, denied once: tunnel.example:8443
  - hosts: [tunnel.example]
    ports: [8443]
`
	if err != nil || got != want {
		t.Errorf("%v\n%s", err, got)
	}
}
