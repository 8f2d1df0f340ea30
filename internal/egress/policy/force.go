package policy

import (
	"strings"

	git "github.com/cove-sandbox/cove/internal/git/policy"
)

// MayForce reports whether a policy may admit forced pushes to a remote: its git section allows them, or asks.
func MayForce(layers []*Document, remote string) (bool, error) {
	if !strings.HasPrefix(remote, "https://") {
		return false, nil
	}
	r, err := ParseRemote(remote)
	if err != nil {
		return false, err
	}
	var sections []*Document
	for _, d := range layers { // the rest cannot change the answer
		sections = append(sections, &Document{Source: d.Source, Mode: d.Mode, Replace: d.Replace, Git: d.Git})
	}
	p, err := Compile(Machine{}, sections...)
	if err != nil {
		return false, err
	}
	of := p.Git(r.Host, r.Port, r.Path)
	return of != nil && of.Force != git.Deny, nil
}
