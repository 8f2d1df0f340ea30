package jsonschema

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/cove-sandbox/cove"
)

// tooMuch ends a validation from within.
var tooMuch = errors.New("too many steps")

// meter makes every part of the schema count the steps of a validation, so that alternatives inside alternatives, which
// multiply, end in an error.
//
// The library asks for the format of a value before it goes on into the parts of a schema, which makes a format the
// place to count: what ends earlier has no parts, and is paid for by the part above it.
func (s *Schema) meter() error {
	seen := map[*jsonschema.Schema]bool{}
	todo := []*jsonschema.Schema{s.compiled}
	for len(todo) > 0 {
		part := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[part] {
			continue
		}
		seen[part] = true
		if (part.DynamicRef != nil || part.RecursiveRef != nil) && strings.HasPrefix(part.Location, location) {
			return cove.Errorf(cove.InvalidArgument, "the schema is not valid: $dynamicRef and $recursiveRef are not supported").
				WithHint("use $ref")
		}
		same, named, each := parts(part)
		todo = slices.Concat(todo, same, named, each)
		s.count(part, 1+dear*weight(same)+weight(named), 1+weight(each))
	}
	return nil
}

// count lets a part of the schema take its steps, so many for a value and so
// many for each thing in it, whenever it looks into one.
func (s *Schema) count(part *jsonschema.Schema, once, each int) {
	format := part.Format
	counted := &jsonschema.Format{Validate: func(v any) error {
		s.steps += once + each*size(v)
		if s.steps > maxSteps {
			panic(tooMuch)
		}
		if format != nil {
			return format.Validate(v)
		}
		return nil
	}}
	if format != nil {
		counted.Name = format.Name
	}
	part.Format = counted
}

// size is how much there is to look at in a value, but not below it.
func size(v any) int {
	switch v := v.(type) {
	case map[string]any:
		return len(v)
	case []any:
		return len(v)
	case string:
		return len(v) >> 8 // a pattern reads it byte by byte
	}
	return 0
}

// weight returns the steps that parts take before they look into a value.
func weight(parts []*jsonschema.Schema) int {
	n := len(parts)
	for _, part := range parts {
		if part.Const != nil {
			n += count(*part.Const)
		}
		if part.Enum != nil {
			n += count(part.Enum.Values)
		}
	}
	return n
}

// dear is how much more it takes to judge a value again: where nothing matches, every way that was tried is remembered.
const dear = 10

// parts are the schemas that a schema leads to directly: those that judge the
// same value again, a named thing in it, and each thing in it.
func parts(s *jsonschema.Schema) (same, named, each []*jsonschema.Schema) {
	add := func(to *[]*jsonschema.Schema, some ...*jsonschema.Schema) {
		for _, one := range some {
			if one != nil {
				*to = append(*to, one)
			}
		}
	}
	add(&same, s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else, s.ContentSchema)
	if s.DynamicRef != nil {
		add(&same, s.DynamicRef.Ref)
	}
	add(&same, slices.Concat(s.AllOf, s.AnyOf, s.OneOf)...)
	add(&same, slices.Collect(maps.Values(s.DependentSchemas))...)
	for _, either := range s.Dependencies {
		if one, ok := either.(*jsonschema.Schema); ok {
			add(&same, one)
		}
	}
	add(&named, s.PrefixItems...)
	add(&named, slices.Collect(maps.Values(s.Properties))...)
	add(&each, s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems)
	add(&each, slices.Collect(maps.Values(s.PatternProperties))...)
	for _, either := range []any{s.AdditionalProperties, s.Items, s.AdditionalItems} {
		switch either := either.(type) {
		case *jsonschema.Schema:
			add(&each, either)
		case []*jsonschema.Schema:
			add(&named, either...)
		}
	}
	return same, named, each
}
