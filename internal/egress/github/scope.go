package github

import "github.com/vektah/gqlparser/v2/ast"

// scope holds the variables of an operation.
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

// value returns a value as the server evaluates it: numbers, booleans and enums as in the document.
func (in scope) value(v *ast.Value) (any, error) {
	switch v.Kind {
	case ast.Variable:
		given, fallback, err := in.variable(v.Raw)
		if err != nil || fallback == nil {
			return given, err
		}
		return in.value(fallback)
	case ast.NullValue:
		return nil, nil
	case ast.ListValue:
		var list []any
		for _, c := range v.Children {
			one, err := in.value(c.Value)
			if err != nil {
				return nil, err
			}
			list = append(list, one)
		}
		return list, nil
	case ast.ObjectValue:
		object := map[string]any{}
		for _, c := range v.Children {
			if _, twice := object[c.Name]; twice {
				return nil, form("an object has a member twice")
			}
			one, err := in.value(c.Value)
			if err != nil {
				return nil, err
			}
			object[c.Name] = one
		}
		return object, nil
	}
	return v.Raw, nil
}
