package github

import (
	_ "embed"
	"strings"
	"sync"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/formatter"
	"github.com/vektah/gqlparser/v2/parser"

	"github.com/cove-sandbox/cove/internal/egress/policy"
)

const maxTokens = 20_000 // bounds a GraphQL document; those of gh have a few hundred

type mutation struct {
	effect effect
	event  eventRule // of its input
}

//go:embed mutations.txt
var mutationsTable string

// mutations returns the known root fields of GraphQL mutations. Others are refused; the rows that refuse give a reason.
var mutations = sync.OnceValue(func() map[string]mutation {
	all := map[string]mutation{}
	for row := range tableRows(mutationsTable, 2) {
		all[row[1]] = mutation{effect: effect(row[0]), event: eventRule(row[2])}
	}
	return all
})

// judgeGraphQL judges the body of a request to a server, and encodes it again.
func judgeGraphQL(data []byte, server policy.Host, g Grants) (Judged, error) {
	body, err := readObject(data)
	if err != nil {
		return Judged{}, form(err.Error() + ` ({"query": …, "variables": …} is)`)
	}
	q := query{server: server, grants: g, fragments: map[string]*ast.FragmentDefinition{}}
	sent := map[string]any{}
	for key, value := range body {
		var ok bool
		switch key {
		case "query":
			q.text, ok = value.(string)
		case "operationName":
			q.name, ok = value.(string)
			if ok = ok || value == nil; q.name != "" {
				sent[key] = q.name
			}
		case "variables":
			q.variables, ok = value.(map[string]any)
			if ok = ok || value == nil; q.variables != nil {
				sent[key] = q.variables
			}
		case "extensions":
			extensions, is := value.(map[string]any)
			ok = value == nil || is && len(extensions) == 0
		default:
			ok = false
		}
		if !ok {
			return Judged{}, form("what it has as " + quoted(key) + " is no part of a GraphQL request, or a stored query")
		}
	}
	if err := q.judge(); err != nil {
		return Judged{}, err
	}
	sent["query"] = q.text
	written, err := writeJSON(sent)
	return Judged{Body: written, Nodes: q.nodes}, err
}

type query struct {
	text      string
	name      string // the requested operation; empty if none is named
	variables map[string]any
	server    policy.Host
	grants    Grants
	fragments map[string]*ast.FragmentDefinition
	nodes     []string // ids that the grants have to reach
}

func (q *query) judge() error {
	doc, err := q.read()
	if err != nil {
		return err
	}
	for _, f := range doc.Fragments {
		if q.fragments[f.Name] != nil {
			return form("two fragments have the name " + quoted(f.Name))
		}
		q.fragments[f.Name] = f
		if err := checkFields(f.SelectionSet); err != nil {
			return err
		}
	}
	if err := q.checkOperations(doc.Operations); err != nil {
		return err
	}
	for _, o := range doc.Operations {
		if err := checkFields(o.SelectionSet); err != nil {
			return err
		}
		switch o.Operation {
		case ast.Query:
		case ast.Mutation:
			if err := q.judgeMutation(o); err != nil {
				return err
			}
		default:
			return form("it is a subscription")
		}
		if !q.grants.limited() {
			continue
		}
		in, err := q.scope(o)
		if err != nil {
			return err
		}
		w := &walk{server: q.server, grants: q.grants, fragments: q.fragments, in: in, seen: map[visit]bool{}, nodes: q.nodes}
		if err := w.operation(o); err != nil {
			return err
		}
		q.nodes = w.nodes
	}
	return nil
}

// read parses the document, renders it, and returns what that parses to, so that no other parser reads it differently.
func (q *query) read() (*ast.QueryDocument, error) {
	doc, err := parse(q.text)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	formatter.NewFormatter(&b, formatter.WithIndent(""), formatter.WithoutDescription()).FormatQueryDocument(doc)
	q.text = b.String()
	return parse(q.text)
}

func parse(text string) (*ast.QueryDocument, error) {
	doc, err := parser.ParseQueryWithTokenLimit(&ast.Source{Input: text}, maxTokens)
	if err != nil {
		return nil, form("the GraphQL cannot be parsed: " + quoted(err.Error()))
	}
	return doc, nil
}

// checkOperations requires that the executed operation is unambiguous.
func (q *query) checkOperations(all ast.OperationList) error {
	names := map[string]bool{}
	for _, o := range all {
		if names[o.Name] {
			return form("two operations have the same name")
		}
		names[o.Name] = true
	}
	switch {
	case len(all) == 0:
		return form("there is no GraphQL operation in it")
	case len(all) > 1 && (q.name == "" || names[""]):
		return form("there are several GraphQL operations, and operationName does not say which is meant")
	case q.name != "" && !names[q.name]:
		return form("operationName names no operation of it")
	}
	return nil
}

var secretFields = map[string]bool{"recoveryCodes": true}

func checkFields(set ast.SelectionSet) error {
	for _, s := range set {
		var below ast.SelectionSet
		switch s := s.(type) {
		case *ast.Field:
			if secretFields[s.Name] {
				return refuse(tokens)
			}
			below = s.SelectionSet
		case *ast.InlineFragment:
			below = s.SelectionSet
		}
		if err := checkFields(below); err != nil {
			return err
		}
	}
	return nil
}

func (q *query) judgeMutation(o *ast.OperationDefinition) error {
	in, err := q.scope(o)
	if err != nil {
		return err
	}
	return q.judgeRoot(o.SelectionSet, in, map[string]bool{})
}

// scope returns the variables of an operation.
func (q *query) scope(o *ast.OperationDefinition) (scope, error) {
	defaults := map[string]*ast.Value{} // nil where there is none
	for _, d := range o.VariableDefinitions {
		if _, twice := defaults[d.Variable]; twice {
			return scope{}, form("a variable is defined twice")
		}
		defaults[d.Variable] = d.DefaultValue
	}
	return scope{q.variables, defaults}, nil
}

// judgeRoot judges root fields through fragments; seen holds the fragments judged already.
func (q *query) judgeRoot(set ast.SelectionSet, in scope, seen map[string]bool) error {
	for _, s := range set {
		var err error
		switch s := s.(type) {
		case *ast.Field:
			err = q.judgeField(s, in)
		case *ast.InlineFragment:
			err = q.judgeRoot(s.SelectionSet, in, seen)
		case *ast.FragmentSpread:
			f := q.fragments[s.Name]
			if f == nil || len(f.VariableDefinition) > 0 {
				return form("the fragment " + quoted(s.Name) + " is not there, or has variables of its own")
			}
			if !seen[s.Name] {
				seen[s.Name] = true
				err = q.judgeRoot(f.SelectionSet, in, seen)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// judgeField judges one field by its name, not by its alias.
func (q *query) judgeField(f *ast.Field, in scope) error {
	if f.Name == "__typename" {
		return nil
	}
	m, known := mutations()[f.Name]
	switch {
	case !known:
		e := refuse(unknown)
		e.Reason = "the gateway does not know what the mutation " + quoted(f.Name) + " does; ask a person to run it"
		return e
	case !m.effect.granted():
		return refuse(m.effect)
	case !q.grants.PullRequests:
		return ungranted(words[m.effect])
	case len(f.Arguments) != 1 || f.Arguments[0].Name != "input":
		return form("the mutation " + f.Name + " takes one argument, input")
	}
	if m.event == noEvent {
		return nil
	}
	event, has, err := in.member(f.Arguments[0].Value, "event")
	if err != nil {
		return err
	}
	return m.event.judge(event, has)
}
