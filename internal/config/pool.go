package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/runtime"
)

// Pool holds the settings of sandboxes that a server prepares ahead.
type Pool struct {
	Size     int        `yaml:"size" doc:"Prepared sandboxes of a kind, at most; 0: none."`
	MemoryMB int        `yaml:"memory_mb" doc:"MiB of memory that all may have together."`
	MaxAge   Duration   `yaml:"max_age" doc:"A prepared sandbox that is older is replaced."`
	Zygotes  bool       `yaml:"zygotes" doc:"Whether Python programs are made from the state of one that has started."`
	Docker   DockerPool `yaml:"docker"`
	Warm     []Warm     `yaml:"warm" doc:"RUNTIME, RUNTIME@IMAGE, or a mapping: see docs/running.md."`

	PythonModules []string `yaml:"python_modules" doc:"Modules that Python zygotes have imported."`
}

// DockerPool holds what is different for the engines docker and podman, which need longer to make a sandbox.
type DockerPool struct {
	Size   int `yaml:"size" doc:"Prepared containers of a kind, while some are asked for."`
	Refill int `yaml:"refill" doc:"Others are made when fewer are ready; 0: when one is missing."`
}

// Warm says how many sandboxes are prepared for executions that ask for nothing but a runtime, an image, an engine and
// limits. What is zero, but Least, is as for others of the engine.
type Warm struct {
	Runtime string    `yaml:"runtime"`
	Image   string    `yaml:"image"`
	Engine  string    `yaml:"engine"`
	Limits  Resources `yaml:"limits"`
	Least   int       `yaml:"least"` // whatever is asked for
	Most    int       `yaml:"most"`
	Refill  int       `yaml:"refill"` // others are made when fewer are ready
	MaxAge  Duration  `yaml:"max_age"`
}

// Asks returns the limits that the executions ask for.
func (w Warm) Asks() cove.Limits { return w.Limits.limits() }

// leaves returns the settings that a mapping may have.
func (w *Warm) leaves() settings {
	all := settings{}
	for _, s := range collect("", reflect.ValueOf(w).Elem()) {
		all[s.name] = s
	}
	return all
}

// parseWarm parses RUNTIME or RUNTIME@IMAGE.
func parseWarm(text string) Warm {
	w := Warm{Least: 1}
	w.Runtime, w.Image, _ = strings.Cut(text, "@")
	return w
}

func parseWarms(texts []string) (all []Warm) {
	for _, text := range texts {
		all = append(all, parseWarm(text))
	}
	return all
}

func decodeWarms(p *[]Warm, n *yaml.Node) error {
	if n.Kind != yaml.SequenceNode {
		return errors.New("must be a list")
	}
	var all []Warm
	for _, item := range n.Content {
		w := Warm{Least: 1}
		switch {
		case item.Kind == yaml.ScalarNode && item.Tag != "!!null":
			w = parseWarm(item.Value)
		case item.Kind == yaml.MappingNode:
			if err := w.leaves().decode("", item); err != nil {
				return err
			}
		default:
			return fmt.Errorf("line %d: must be RUNTIME, RUNTIME@IMAGE, or a mapping with runtime, least and most", item.Line)
		}
		all = append(all, w)
	}
	*p = all
	return nil
}

// decode sets the leaves that a mapping has below a name.
func (all settings) decode(below string, n *yaml.Node) error {
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		name := below + key.Value
		if value.Kind == yaml.MappingNode && all.section(name) {
			if err := all.decode(name+".", value); err != nil {
				return err
			}
			continue
		}
		s, ok := all[name]
		if !ok {
			return fmt.Errorf("line %d: there is no %q here; %s", key.Line, name, all.suggest(name))
		}
		if err := s.decode(value); err != nil {
			return fmt.Errorf("line %d: %s: %w", value.Line, name, err)
		}
	}
	return nil
}

// show returns an entry as text where that says all, or else what it sets.
func (w Warm) show() string {
	short := w.Runtime
	if w.Image != "" {
		short += "@" + w.Image
	}
	if w == parseWarm(short) {
		return quoted(short)
	}
	var set []string
	limits := ""
	for _, s := range collect("", reflect.ValueOf(&w).Elem()) {
		name, limit := strings.CutPrefix(s.name, "limits.")
		value := s.show()
		if s.value.Kind() == reflect.String {
			value = quoted(s.value.String())
		}
		switch value = name + ": " + value; {
		case s.value.IsZero() && name != "least":
		case limit:
			limits += ", " + value
		default:
			set = append(set, value)
		}
	}
	if limits != "" {
		set = append(set, "limits: {"+limits[2:]+"}")
	}
	return "{" + strings.Join(set, ", ") + "}"
}

const (
	mostPrepared = 1000             // sandboxes of a kind, at most
	leastAge     = 10 * time.Second // below which a prepared sandbox is not replaced
)

// checkPool refuses entries of sandbox.pool.warm that cannot be kept.
func checkPool(c *Config) error {
	const name = "sandbox.pool.warm"
	for i, w := range c.Sandbox.Pool.Warm {
		most := w.Most
		if most == 0 {
			most = mostPrepared
		}
		if w.Runtime == "" {
			return c.wrong(name, "entry %d names no runtime", i+1).WithHint("write runtime: python, or another language")
		}
		if w.Engine != "" && !slices.Contains(engine.Names(), w.Engine) {
			return c.wrong(name, "%s: the engine %.80q is none of %s", w.Runtime, w.Engine, strings.Join(engine.Names(), ", ")).
				WithHint("choose one of them, or leave it out for the configured one")
		}
		for _, n := range []struct {
			name             string
			value, from, top int
		}{{"most", w.Most, 0, mostPrepared}, {"least", w.Least, 0, most}, {"refill", w.Refill, 0, most}} {
			if n.value < n.from || n.value > n.top {
				return c.wrong(name, "%s: %s: %d is out of range", w.Runtime, n.name, n.value).
					WithHint("use %d to %d", n.from, n.top)
			}
		}
		if age := time.Duration(w.MaxAge); age != 0 && (age < leastAge || age > 36_500*day) {
			return c.wrong(name, "%s: max_age: %s is out of range", w.Runtime, w.MaxAge).
				WithHint("use %s or more, or leave it out for sandbox.pool.max_age", Duration(leastAge))
		}
		if _, err := c.Bounds().Resolve(runtime.Runtime{}, w.Asks()); err != nil {
			return c.wrong(name, "%s: limits: %w", w.Runtime, err).WithHint("%s", cove.ErrorHint(err))
		}
		for j, other := range c.Sandbox.Pool.Warm[:i] {
			if other.Runtime == w.Runtime && other.Image == w.Image && other.Engine == w.Engine && other.Limits == w.Limits &&
				other != w {
				return c.wrong(name, "the entries %d and %d are about the same executions", j+1, i+1).
					WithHint("remove one, or give it another image, engine or limits")
			}
		}
	}
	return nil
}
