package config

import (
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/access"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/prices"
)

// APIKey is one key: its holder's name, its SHA-256 in hex, and what it may do and use. The key itself is nowhere.
// Texts are as they stand in the file; an empty one is no bound.
type APIKey struct {
	Name       string
	Hash       string
	Scopes     []string // nil: access.Usual
	Expires    string   // the last day on which it is valid, in UTC
	Concurrent string
	Rate       string
	CPUSeconds string // hour=N,day=N
	Sandboxes  string
	DiskMB     string
	Models     string // requests=N,tokens=N,cost=DOLLARS; empty: none
}

// texts are the settings of a key that are one text each, by their names in the file.
func (k *APIKey) texts() map[string]*string {
	return map[string]*string{"name": &k.Name, "hash": &k.Hash, "expires": &k.Expires, "concurrent": &k.Concurrent,
		"rate": &k.Rate, "cpu_seconds": &k.CPUSeconds, "sandboxes": &k.Sandboxes, "disk_mb": &k.DiskMB,
		"model_budget": &k.Models}
}

// textNames are the names of texts but name and hash, in the order in which they are written.
var textNames = []string{"expires", "concurrent", "rate", "cpu_seconds", "sandboxes", "disk_mb", "model_budget"}

func decodeKeys(p *[]APIKey, n *yaml.Node) error {
	if n.Kind != yaml.SequenceNode {
		return fmt.Errorf("must be a list of name and hash")
	}
	var keys []APIKey
	for _, item := range n.Content {
		if item.Kind != yaml.MappingNode {
			return fmt.Errorf("line %d: must have name and hash", item.Line)
		}
		var k APIKey
		texts := k.texts()
		for i := 0; i+1 < len(item.Content); i += 2 {
			key, value := item.Content[i], item.Content[i+1]
			if key.Value == "scopes" {
				if err := decodeStrings(&k.Scopes, value); err != nil {
					return fmt.Errorf("line %d: scopes %w", value.Line, err)
				}
				if k.Scopes == nil {
					k.Scopes = []string{}
				}
				continue
			}
			text, known := texts[key.Value]
			switch {
			case !known:
				return fmt.Errorf("line %d: a key has name and hash, and may have scopes, %s, but not %q", key.Line,
					strings.Join(textNames, ", "), key.Value)
			case value.Kind != yaml.ScalarNode || value.Tag == "!!null":
				return fmt.Errorf("line %d: %s must be a text", value.Line, key.Value)
			}
			*text = value.Value
		}
		keys = append(keys, k)
	}
	*p = keys
	return nil
}

// Grant parses what a key may do and use. Errors: InvalidArgument.
func (k APIKey) Grant() (g access.Grant, err error) {
	if g.Scopes = access.Usual; k.Scopes != nil {
		if g.Scopes, err = access.ParseScopes(k.Scopes); err != nil {
			return g, err
		}
		if len(g.Scopes) == 0 {
			return g, cove.Errorf(cove.InvalidArgument, "scopes names none, so that the key could do nothing").
				WithHint("name some, or leave scopes out")
		}
	}
	if k.Expires != "" {
		last, err := time.Parse(time.DateOnly, k.Expires)
		if err != nil {
			return g, cove.Errorf(cove.InvalidArgument, "expires: %.40q is not a date", k.Expires).
				WithHint("write it like 2027-01-31")
		}
		g.Expires = last.AddDate(0, 0, 1)
	}
	var concurrent, sandboxes, disk float64
	for _, q := range []struct {
		name, text string
		to         *float64
		whole      bool
	}{{"concurrent", k.Concurrent, &concurrent, true}, {"rate", k.Rate, &g.Rate, false},
		{"sandboxes", k.Sandboxes, &sandboxes, true}, {"disk_mb", k.DiskMB, &disk, true}} {
		if q.text == "" {
			continue
		}
		n, err := strconv.ParseFloat(q.text, 64)
		if err != nil || !(n > 0 && n <= 1e9) || q.whole && n != math.Trunc(n) {
			return g, cove.Errorf(cove.InvalidArgument, "%s: %.40q is not a number above 0", q.name, q.text).
				WithHint("write it like 4, or leave it out for no bound")
		}
		*q.to = n
	}
	g.Concurrent, g.Sandboxes, g.Disk = int(concurrent), int(sandboxes), int64(disk)<<20
	if k.CPUSeconds != "" {
		if g.CPUHour, g.CPUDay, err = parseCPU(k.CPUSeconds); err != nil {
			return g, err
		}
	}
	if k.Models != "" {
		if g.Models, err = model.ParseBudget(k.Models); err != nil {
			return g, cove.Errorf(cove.InvalidArgument, "model_budget: %s", cove.ErrorMessage(err)).
				WithHint("%s", cove.ErrorHint(err))
		}
	}
	return g, nil
}

// parseCPU parses hour=N,day=N, each optional.
func parseCPU(text string) (hour, day time.Duration, err error) {
	of := map[string]*time.Duration{"hour": &hour, "day": &day}
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		to, known := of[name]
		n, err := strconv.ParseFloat(value, 64)
		if !known || *to != 0 || err != nil || !(n > 0 && n <= 1e9) {
			return 0, 0, cove.Errorf(cove.InvalidArgument, "cpu_seconds: %.40q is not understood", part).
				WithHint("write it like hour=600,day=3600")
		}
		*to = time.Duration(n * float64(time.Second))
	}
	return hour, day, nil
}

// Grants returns what each API key may do and use. The configuration has been validated.
func (c *Config) Grants() access.Grants {
	all := access.Grants{}
	for _, k := range c.APIKeys {
		if g, err := k.Grant(); err == nil {
			all[cove.KeyHolder(k.Name)] = g
		}
	}
	return all
}

// checkKeys refuses keys that cannot be told apart, or whose grant is not understood.
func (c *Config) checkKeys() error {
	seen := map[string]bool{}
	for _, k := range c.APIKeys {
		if !keyName.MatchString(k.Name) {
			return c.wrong("api_keys", "%.80q is not a name for a key", k.Name).
				WithHint("use letters, digits, dot, _ and -, at most 64")
		}
		if seen[k.Name] {
			return c.wrong("api_keys", "the name %q is there twice", k.Name).WithHint("give each key a name of its own")
		}
		seen[k.Name] = true
		if b, err := hex.DecodeString(k.Hash); err != nil || len(b) != 32 {
			return c.wrong("api_keys", "the hash of %q is not a SHA-256 in hex (64 digits)", k.Name).
				WithHint("make key and hash with: cove config new-key %s", k.Name)
		}
		if _, err := k.Grant(); err != nil {
			return c.wrong("api_keys", "the key %q: %s", k.Name, cove.ErrorMessage(err)).WithHint("%s", cove.ErrorHint(err))
		}
	}
	return nil
}

// show is a key on one line of YAML; its hash is cut short.
func (k APIKey) show() string {
	text := fmt.Sprintf("name: %s, hash: %.8s…", quoted(k.Name), k.Hash)
	if k.Scopes != nil {
		text += ", scopes: " + list(k.Scopes, quoted)
	}
	texts := k.texts()
	for _, name := range textNames {
		if v := *texts[name]; v != "" {
			text += ", " + name + ": " + quoted(v)
		}
	}
	return "{" + text + "}"
}

// Entry returns a key as an entry of api_keys in the file.
func (k APIKey) Entry() string {
	var b strings.Builder
	fmt.Fprintf(&b, "  - name: %q\n    hash: %s\n", k.Name, k.Hash)
	if k.Scopes != nil {
		fmt.Fprintf(&b, "    scopes: %s\n", list(k.Scopes, quoted))
	}
	texts := k.texts()
	for _, name := range textNames {
		if v := *texts[name]; v != "" {
			fmt.Fprintf(&b, "    %s: %s\n", name, v)
		}
	}
	return b.String()
}

// Providers reads the providers of models that a configuration describes. Errors: InvalidArgument.
func Providers(c *Config) ([]model.Provider, error) {
	if c.Gateway.Providers == "" {
		return model.Known()
	}
	text, err := os.ReadFile(c.Gateway.Providers)
	if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "gateway.providers: %w", err)
	}
	return model.Parse(c.Gateway.Providers, text)
}

// Prices returns the prices of all providers, in the order in which they count. Errors: InvalidArgument.
func Prices(c *Config) (all []prices.Price, err error) {
	providers, err := Providers(c)
	for _, p := range providers {
		for _, price := range p.Prices {
			price.Provider = p.Name
			all = append(all, price)
		}
	}
	return all, err
}

// Unjudged names the budgets in dollars of a configuration, and of keys, beneath which requests to a provider are
// refused, since what it costs is not known. Errors: InvalidArgument.
func Unjudged(c *Config, keys ...APIKey) (notes []string, err error) {
	providers, err := Providers(c)
	for _, k := range append([]APIKey{{Name: "a sandbox (gateway.budget)", Models: c.Gateway.Budget}}, keys...) {
		b, _ := model.ParseBudget(k.Models) // it is valid, or empty
		for _, p := range providers {
			if err := p.Judge(b, ""); err != nil {
				notes = append(notes, fmt.Sprintf("the budget of %s: requests to %s are refused: %s", k.Name, p.Name, err))
			}
		}
	}
	return notes, err
}
