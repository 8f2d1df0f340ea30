package devcontainer

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
)

// When says how often a command runs.
type When string

const (
	Once   When = "once"   // when the sandbox is new
	Start  When = "start"  // each time that it starts
	Attach When = "attach" // each time that a user attaches to it
)

// Command is one lifecycle command. Its steps run at the same time.
type Command struct {
	Name  string `json:"name"` // as postCreateCommand
	When  When   `json:"when"`
	Steps []Step `json:"steps"`
	From  string `json:"from"`
}

// Step is one program of a Command.
type Step struct {
	Name string   `json:"name,omitempty"` // its key, where the command is an object
	Args []string `json:"args"`
}

type moment struct {
	name string
	when When
}

// lifecycle are the commands that run inside, in their order.
var lifecycle = []moment{
	{"onCreateCommand", Once},
	{"updateContentCommand", Once},
	{"postCreateCommand", Once},
	{"postStartCommand", Start},
	{"postAttachCommand", Attach},
}

// stage returns the index of a command in lifecycle, or -1.
func stage(name string) int {
	return slices.IndexFunc(lifecycle, func(m moment) bool { return m.name == name })
}

// steps reads a command in any of its forms: a string is for the shell, an array is a program with its arguments, an
// object has several of both. Empty ones are none.
func steps(f File, p property, v variables) ([]Step, error) {
	if !bytes.HasPrefix(bytes.TrimSpace(p.value), []byte("{")) {
		args, err := arguments(f, p, v)
		if err != nil || len(args) == 0 {
			return nil, err
		}
		return []Step{{Args: args}}, nil
	}
	var named map[string]json.RawMessage
	if err := p.into(f, &named); err != nil {
		return nil, err
	}
	var all []Step
	for _, name := range slices.Sorted(maps.Keys(named)) {
		args, err := arguments(f, property{name: p.name, line: p.line, value: named[name]}, v)
		if err != nil {
			return nil, err
		}
		if len(args) > 0 {
			all = append(all, Step{name, args})
		}
	}
	return all, nil
}

func arguments(f File, p property, v variables) ([]string, error) {
	value := bytes.TrimSpace(p.value)
	switch {
	case bytes.Equal(value, []byte("null")):
		return nil, nil
	case bytes.HasPrefix(value, []byte("[")):
		var args []string
		if err := p.into(f, &args); err != nil {
			return nil, err
		}
		for i, a := range args {
			args[i], _ = v.expand(a)
		}
		return args, nil
	}
	var line string
	if err := p.into(f, &line); err != nil || line == "" {
		return nil, err
	}
	line, _ = v.expand(line)
	return []string{"/bin/sh", "-c", line}, nil
}
