package policy

import "strings"

// HostService is the name of the machine's own services inside a sandbox, each opened by a rule with its port. The
// gateway dials loopback for it. No wildcard matches it.
const HostService = "host.cove.internal"

// GatewayService is the name of the gateway's endpoints inside a sandbox, by HTTP on port 80. No rule opens it: the
// gateway decides on its endpoints. Rules may deny it (see Policy.Denied).
const GatewayService = "gateway.cove.internal"

// ownDomain is the domain of Cove's own names.
const ownDomain = ".cove.internal"

// closedNames lead to the machine itself or to a cloud's metadata service. They resolve to addresses that are refused
// anyway; refusing the name gives a better reason.
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

// closedName returns the target of a name that no rule can open, or "".
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
