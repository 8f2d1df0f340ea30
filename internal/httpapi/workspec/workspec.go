// Package workspec converts the work of sandboxes between its wire types and those of package repos, for the server and
// for commands that apply work themselves.
package workspec

import (
	"slices"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/repos"
)

// Changes turns changed files into the wire type.
func Changes(all []repos.Change) []api.WorkChange { return apispec.Changes(repos.Describe(all)) }

// ApplyStyle turns a wire request into one of the store's.
func ApplyStyle(q api.ApplyRequest) (of repos.Work, style repos.ApplyStyle, err error) {
	of, style = repos.Work{Paths: q.Paths}, repos.ApplyStyle{Restricted: q.Restricted, Merge: q.Merge}
	if q.Choice == nil {
		return of, style, nil
	}
	if of.Paths != nil {
		return of, style, cove.Errorf(cove.InvalidArgument, "choice and paths exclude each other").
			WithHint("name the files one way")
	}
	style.Choice = map[string]repos.Choice{}
	for _, c := range q.Choice {
		of.Paths = append(of.Paths, c.Path)
		style.Choice[c.Path] = repos.Choice{ID: c.NewID, Parts: c.Parts}
	}
	return of, style, nil
}

// AppliedWork turns what was applied into the wire type.
func AppliedWork(done repos.Applied) api.AppliedWork {
	all := api.AppliedWork{Changes: Changes(done.Changes)}
	for i, c := range all.Changes {
		if slices.Contains(done.Merged, c.Path) {
			all.Changes[i].Change = "merged"
		}
	}
	for _, c := range done.Conflicts {
		all.Conflicts = append(all.Conflicts, api.WorkConflict(c))
		all.Changes = slices.DeleteFunc(all.Changes, func(w api.WorkChange) bool { return w.Path == c.Path })
	}
	return all
}
