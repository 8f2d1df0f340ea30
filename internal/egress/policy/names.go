package policy

import "strings"

// HostService is the name by which a sandbox reaches services of the machine
// it runs on, each by a port that a rule names. The gateway dials loopback
// for it. No wildcard matches it.
const HostService = "host.cove.internal"

// GatewayService is the name by which a sandbox reaches endpoints of its
// gateway, by HTTP on port 80. No rule opens it: what is behind it is the
// gateway's to say. Rules may deny it (see Policy.Denied).
const GatewayService = "gateway.cove.internal"

// ownDomain is where Cove's own names are.
const ownDomain = ".cove.internal"

// closedNames lead to the machine itself or to what a cloud tells it. They
// resolve to addresses that are refused; refusing the name says why.
var closedNames = map[string]string{
	"localhost":                  "this machine",
	"localhost.localdomain":      "this machine",
	"ip6-localhost":              "this machine",
	"ip6-loopback":               "this machine",
	"metadata":                   "cloud metadata",
	"metadata.google.internal":   "cloud metadata",
	"metadata.goog":              "cloud metadata",
	"instance-data":              "cloud metadata",
	"instance-data.ec2.internal": "cloud metadata",
	"metadata.tencentyun.com":    "cloud metadata",
}

// closedName says what a name that no rule can open leads to, or nothing.
func closedName(name string) string {
	if why := closedNames[name]; why != "" {
		return why
	}
	switch {
	case strings.HasSuffix(name, ".localhost"):
		return "this machine"
	case strings.HasSuffix(name, ownDomain) && name != HostService, name == ownDomain[1:]:
		return "Cove itself"
	case strings.HasSuffix(name, ".metadata.google.internal"):
		return "cloud metadata"
	}
	return ""
}
