package github

import (
	_ "embed"
	"strconv"
	"strings"
	"sync"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/formatter"
	"github.com/vektah/gqlparser/v2/parser"
)

// maxTokens bounds a GraphQL document; those of gh have a few hundred.
const maxTokens = 20_000

// mutation describes a known root field of mutations.
type mutation struct {
	effect effect
	event  eventRule // of its input
}

//go:embed mutations.txt
var mutationsTable string

// mutations returns the known root fields of GraphQL mutations. Unknown fields are refused too; the entries that refuse
// give a reason.
var mutations = sync.OnceValue(func() map[string]mutation {
	all := map[string]mutation{}
	for row := range tableRows(mutationsTable, 2) {
		all[row[1]] = mutation{effect: effect(row[0]), event: eventRule(row[2])}
	}
	return all
})

// judgeGraphQL judges the body of a request, and encodes it again.
func judgeGraphQL(data []byte, g Grants) ([]byte, error) {
	body, err := readObject(data)
	if err != nil {
		return nil, form(err.Error() + ` ({"query": …, "variables": …} is)`)
	}
	q := query{grants: g, fragments: map[string]*ast.FragmentDefinition{}}
	sent := map[string]any{}
	for key, value := range body {
		ok := true
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
			return nil, form("what it has as " + quoted(key) + " is no part of a GraphQL request, or a stored query")
		}
	}
	if err := q.judge(); err != nil {
		return nil, err
	}
	sent["query"] = q.text
	return writeJSON(sent)
}

// query is a GraphQL request during its judgement.
type query struct {
	text      string
	name      string // the requested operation; empty if none is named
	variables map[string]any
	grants    Grants
	fragments map[string]*ast.FragmentDefinition
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
	}
	return nil
}

// read parses the document and renders it again, so that no part is left that another parser could read differently.
// The rendered document is the judged one.
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

// secretFields are fields that show secrets.
var secretFields = map[string]bool{"recoveryCodes": true}

// checkFields checks every field of a selection, at any depth.
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

// judgeMutation judges every field at the root of a mutation.
func (q *query) judgeMutation(o *ast.OperationDefinition) error {
	defaults := map[string]*ast.Value{} // nil where there is none
	for _, d := range o.VariableDefinitions {
		if _, twice := defaults[d.Variable]; twice {
			return form("a variable is defined twice")
		}
		defaults[d.Variable] = d.DefaultValue
	}
	return q.judgeRoot(o.SelectionSet, scope{q.variables, defaults}, map[string]bool{})
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

// scope holds the values of variables.
type scope struct {
	given    map[string]any
	defaults map[string]*ast.Value // of all defined variables; nil where there is none
}

// member returns a member of an object as servers evaluate it: values of variables, defaults where a variable has none,
// and absent where there is no default either. An enum value is returned as a string, in either notation.
func (in scope) member(v *ast.Value, name string) (value any, has bool, err error) {
	if v.Kind == ast.Variable {
		given, fallback, err := in.variable(v.Raw)
		if err != nil || fallback == nil {
			object, ok := given.(map[string]any)
			if err == nil && !ok {
				err = form("input is not an object")
			}
			value, has = object[name]
			return value, has, err
		}
		v = fallback
	}
	if v.Kind != ast.ObjectValue {
		return nil, false, form("input is not an object")
	}
	var found *ast.Value
	members := map[string]bool{}
	for _, m := range v.Children {
		if members[m.Name] {
			return nil, false, form("input has a member twice")
		}
		members[m.Name] = true
		if m.Name == name {
			found = m.Value
		}
	}
	if found == nil {
		return nil, false, nil
	}
	return in.scalar(found)
}

// scalar returns the value of an enum, from the document or a variable.
func (in scope) scalar(v *ast.Value) (value any, has bool, err error) {
	if v.Kind == ast.Variable {
		given, fallback, err := in.variable(v.Raw)
		if err != nil || fallback == nil {
			_, has = in.given[v.Raw]
			return given, has, err
		}
		v = fallback
	}
	switch v.Kind {
	case ast.EnumValue:
		return v.Raw, true, nil
	case ast.NullValue:
		return nil, true, nil
	}
	return nil, false, form("the event of a review is a bare word")
}

// variable returns a variable's given value, or else its default.
func (in scope) variable(name string) (given any, fallback *ast.Value, err error) {
	otherwise, defined := in.defaults[name]
	if !defined {
		return nil, nil, form("the variable $" + name + " is not defined")
	}
	if v, ok := in.given[name]; ok {
		return v, nil, nil
	}
	return nil, otherwise, nil
}

// quoted returns a bounded part of a document for a message.
func quoted(s string) string {
	const most = 80
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strconv.Quote(s)
}
