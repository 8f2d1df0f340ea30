package devcontainer

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
)

// Isolation is customizations.cove.isolation, which customizations.devagent.isolation is read alike.
type Isolation struct {
	Enabled   *bool     `json:"enabled"` // nil is true
	Caps      Caps      `json:"caps"`
	Resources Resources `json:"resources"`
	Network   Reach     `json:"network"`
}

type Caps struct {
	Drop []string `json:"drop"`
	Add  []string `json:"add"`
}

// Resources are sizes as Docker's options have them, such as 4g, and numbers of cores, such as 2.
type Resources struct {
	Memory    text  `json:"memory"`
	CPUs      text  `json:"cpus"`
	PIDsLimit int64 `json:"pidsLimit"`
}

// Reach lists hosts.
type Reach struct {
	Allowlist       []string `json:"allowlist"`
	AllowlistExtend []string `json:"allowlistExtend"`
	Passthrough     []string `json:"passthrough"`
	Pinned          []string `json:"passthroughPinned"` // an older name of Passthrough
}

// text is a string, or a number as it is written.
type text string

func (t *text) UnmarshalJSON(data []byte) error {
	var n json.Number
	if err := json.Unmarshal(data, &n); err == nil {
		*t = text(n)
		return nil
	}
	return json.Unmarshal(data, (*string)(t))
}

// Over lays an isolation over defaults. None at all is the defaults, one that is not enabled stays alone. Else what it
// says replaces what they say, a list that is not empty the whole list; AllowlistExtend is then added to Allowlist.
func (i *Isolation) Over(defaults Isolation) Isolation {
	if i == nil {
		return defaults
	}
	if i.Enabled != nil && !*i.Enabled {
		return *i
	}
	sum := Isolation{Enabled: i.Enabled, Resources: defaults.Resources}
	replace := func(own, other []string) []string {
		if len(own) > 0 {
			return own
		}
		return other
	}
	sum.Caps.Drop = replace(i.Caps.Drop, defaults.Caps.Drop)
	sum.Caps.Add = replace(i.Caps.Add, defaults.Caps.Add)
	if i.Resources.Memory != "" {
		sum.Resources.Memory = i.Resources.Memory
	}
	if i.Resources.CPUs != "" {
		sum.Resources.CPUs = i.Resources.CPUs
	}
	if i.Resources.PIDsLimit != 0 {
		sum.Resources.PIDsLimit = i.Resources.PIDsLimit
	}
	sum.Network.Passthrough = replace(slices.Concat(i.Network.Passthrough, i.Network.Pinned),
		slices.Concat(defaults.Network.Passthrough, defaults.Network.Pinned))
	for _, host := range slices.Concat(replace(i.Network.Allowlist, defaults.Network.Allowlist),
		i.Network.AllowlistExtend) {
		if !slices.Contains(sum.Network.Allowlist, host) {
			sum.Network.Allowlist = append(sum.Network.Allowlist, host)
		}
	}
	return sum
}

// Network divides the hosts that a file wishes to reach by what the user has allowed.
type Network struct {
	Allowed     []string `json:"allowed,omitempty"` // the user has allowed it already
	Asked       []string `json:"asked,omitempty"`   // the user has to allow it
	PassThrough []string `json:"pass_through,omitempty"`
}

// asks divides hosts by whether the user has allowed them.
func (n *Network) asks(hosts, pass, allowed []string) {
	for _, host := range hosts {
		if covers(allowed, host) {
			n.Allowed = append(n.Allowed, host)
		} else {
			n.Asked = append(n.Asked, host)
		}
	}
	n.PassThrough = append(n.PassThrough, pass...)
}

// covers reports whether one of the user's rules, HOST or *.HOST, is for host or for more.
func covers(rules []string, host string) bool {
	return slices.ContainsFunc(rules, func(rule string) bool {
		suffix, wild := strings.CutPrefix(rule, "*")
		return strings.EqualFold(rule, host) ||
			wild && strings.HasSuffix(strings.ToLower(host), strings.ToLower(suffix))
	})
}

// lower returns limits of which each is the lower one; zero is no limit.
func lower(a, b cove.Limits) cove.Limits {
	least := func(a, b int64) int64 {
		if a == 0 || b != 0 && b < a {
			return b
		}
		return a
	}
	a.Memory, a.PIDs, a.Disk = least(a.Memory, b.Memory), least(a.PIDs, b.PIDs), least(a.Disk, b.Disk)
	if a.CPUs == 0 || b.CPUs != 0 && b.CPUs < a.CPUs {
		a.CPUs = b.CPUs
	}
	return a
}
