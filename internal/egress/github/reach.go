package github

import (
	_ "embed"
	"strings"
	"sync"

	"github.com/vektah/gqlparser/v2/ast"

	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// realm tells to whom the objects of a GraphQL selection belong.
type realm string

const (
	ownRealm   realm = "own"   // a repository that the sandbox reaches
	namedRealm realm = "named" // anything else: a person, another repository; only names are read of it
	leafRealm  realm = "leaf"  // the fields of namedRealm
	freeRealm  realm = "free"  // of no repository
)

//go:embed fields.txt
var fieldsTable string

// fields returns the table: the names of each realm.
var fields = sync.OnceValue(func() map[realm]map[string]bool {
	all := map[realm]map[string]bool{ownRealm: {}, namedRealm: {}, leafRealm: {}, freeRealm: {}}
	for line := range strings.Lines(fieldsTable) {
		row := strings.Fields(line)
		if len(row) == 0 || row[0] == "#" {
			continue
		}
		for _, name := range row[1:] {
			all[realm(row[0])][name] = true
		}
	}
	return all
})

// walk judges what a selection reads of objects of a realm.
type walk struct {
	server    policy.Host
	grants    Grants
	fragments map[string]*ast.FragmentDefinition
	in        scope
	seen      map[visit]bool
	nodes     []string // ids that the grants have to reach
}

// visit is a fragment judged for a realm.
type visit struct {
	fragment string
	of       realm
}

// operation judges what an operation reads and changes.
func (w *walk) operation(o *ast.OperationDefinition) error {
	root := w.root
	if o.Operation == ast.Mutation {
		root = w.written
	}
	return w.each(o.SelectionSet, "", root)
}

// each judges the fields of a selection, through fragments; of is empty at the root.
func (w *walk) each(set ast.SelectionSet, of realm, judge func(*ast.Field) error) error {
	for _, s := range set {
		var err error
		switch s := s.(type) {
		case *ast.Field:
			err = judge(s)
		case *ast.InlineFragment:
			err = w.each(s.SelectionSet, of, judge)
		case *ast.FragmentSpread:
			f := w.fragments[s.Name]
			if f == nil || len(f.VariableDefinition) > 0 {
				return form("the fragment " + quoted(s.Name) + " is not there, or has variables of its own")
			}
			if at := (visit{s.Name, of}); !w.seen[at] {
				w.seen[at] = true
				err = w.each(f.SelectionSet, of, judge)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// below judges the selection of a field that leads to a realm.
func (w *walk) below(f *ast.Field, to realm) error {
	return w.each(f.SelectionSet, to, func(f *ast.Field) error { return w.read(f, to) })
}

// read judges a field of an object of a realm.
func (w *walk) read(f *ast.Field, of realm) error {
	known, leaf := fields(), len(f.SelectionSet) == 0
	switch {
	case leaf && (of == ownRealm || known[leafRealm][f.Name]):
		return nil
	case leaf:
	case of == ownRealm && known[ownRealm][f.Name]:
		return w.below(f, ownRealm)
	case known[namedRealm][f.Name], of == namedRealm && (f.Name == "nodes" || f.Name == "edges" || f.Name == "node" ||
		f.Name == "pageInfo"):
		return w.below(f, namedRealm)
	}
	return w.grants.Outside("the field " + quoted(f.Name) + " may show what is in other repositories")
}

// root judges a field of a query.
func (w *walk) root(f *ast.Field) error {
	switch {
	case fields()[freeRealm][f.Name]:
		return nil
	case f.Name == "viewer", f.Name == "user", f.Name == "organization", f.Name == "repositoryOwner":
		return w.below(f, namedRealm)
	case f.Name == "repository":
		return w.repository(f)
	case f.Name == "node", f.Name == "nodes":
		for _, a := range f.Arguments {
			if err := w.ids(a.Value); err != nil {
				return err
			}
		}
		return w.below(f, ownRealm)
	case f.Name == "search":
		return w.search(f)
	}
	return w.grants.Outside("the query " + quoted(f.Name) + " may show what is in other repositories")
}

func (w *walk) repository(f *ast.Field) error {
	owner, err := w.text(f, "owner")
	if err != nil {
		return err
	}
	name, err := w.text(f, "name")
	if err != nil {
		return err
	}
	if full := owner + "/" + name; !w.grants.Reach(w.server, full) {
		return w.grants.Outside(quoted(full) + " is another repository")
	}
	return w.below(f, ownRealm)
}

// search admits a search for issues and pull requests of reached repositories.
func (w *walk) search(f *ast.Field) error {
	text, err := w.text(f, "query")
	if err != nil {
		return err
	}
	kind, err := w.text(f, "type")
	if err != nil {
		return err
	}
	if kind != "ISSUE" || !w.within(text) {
		return w.grants.Outside("a search reads every repository, unless it is for issues and has repo:OWNER/NAME")
	}
	return w.below(f, ownRealm)
}

// within reports whether a search finds only issues of reached repositories. What could widen it otherwise is refused.
func (w *walk) within(search string) bool {
	var plain strings.Builder // without quoted texts, which are words or labels
	for i, part := range strings.Split(search, `"`) {
		if i%2 == 0 {
			plain.WriteString(part)
		} else {
			plain.WriteString("x")
		}
	}
	if strings.Count(search, `"`)%2 != 0 || strings.ContainsAny(search, `\`) || strings.ContainsAny(plain.String(), "()") {
		return false
	}
	found := false
	for _, word := range strings.Fields(strings.ToLower(plain.String())) {
		key, value, _ := strings.Cut(strings.TrimLeft(word, "-+"), ":")
		switch key {
		case "repo":
			if found = word[0] != '-' && w.grants.Reach(w.server, value); !found {
				return false
			}
		case "user", "org", "owner", "enterprise", "or", "not":
			return false
		}
	}
	return found
}

// written judges a field of a mutation: what its input names, and what is read of the result.
func (w *walk) written(f *ast.Field) error {
	if f.Name == "__typename" {
		return nil
	}
	if len(f.Arguments) != 1 {
		return form("the mutation " + f.Name + " takes one argument, input")
	}
	input, err := w.in.value(f.Arguments[0].Value)
	if err != nil {
		return err
	}
	members, ok := input.(map[string]any)
	if !ok {
		return form("input is not an object")
	}
	for name, value := range members {
		if name == "clientMutationId" || !strings.HasSuffix(name, "Id") && name != "inReplyTo" || value == nil {
			continue
		}
		if err := w.node(value); err != nil {
			return err
		}
	}
	return w.below(f, ownRealm)
}

// text returns an argument that is a string, or the name of an enum.
func (w *walk) text(f *ast.Field, name string) (string, error) {
	var found *ast.Value
	for _, a := range f.Arguments {
		switch {
		case a.Name == name && found != nil:
			return "", form("the argument " + quoted(name) + " is there twice")
		case a.Name == name:
			found = a.Value
		}
	}
	if found == nil {
		return "", form("the field " + quoted(f.Name) + " lacks " + quoted(name))
	}
	value, err := w.in.value(found)
	text, ok := value.(string)
	if err == nil && !ok {
		err = form(quoted(name) + " is no text")
	}
	return text, err
}

// ids notes the ids of an argument, of which each has to be a reached repository's.
func (w *walk) ids(v *ast.Value) error {
	value, err := w.in.value(v)
	if err != nil {
		return err
	}
	ids, many := value.([]any)
	if !many {
		ids = []any{value}
	}
	for _, id := range ids {
		if err := w.node(id); err != nil {
			return err
		}
	}
	return nil
}

const maxNodes = 100 // in one request; GitHub's own limit

func (w *walk) node(id any) error {
	text, ok := id.(string)
	switch {
	case !ok || text == "" || len(text) > 200:
		return form("a node's id is not one")
	case len(w.nodes) == maxNodes:
		return form("it names more nodes than the gateway asks GitHub about")
	}
	w.nodes = append(w.nodes, text)
	return nil
}
