package policy

import "slices"

// Neighbour returns the verdict on a request to a service of the sandbox's own group, of which names are all: it is
// allowed without a rule, and passed through, since it leaves the group no more than the sandbox does. false: the
// request is for another host, on which the policy decides. It is pure.
func Neighbour(names []string, r Request) (Verdict, bool) {
	name := r.Host.Name()
	if name == "" || r.Endpoint || !slices.Contains(names, name) {
		return Verdict{}, false
	}
	return Verdict{Action: Allow, Rule: "service " + name, Reason: name + " is a service of this sandbox's group",
		PassThrough: true, Neighbour: true}, true
}
