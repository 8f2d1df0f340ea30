// Package prices holds what models cost at the addresses of well-known providers, with the page and the day of each
// figure, and the rule by which the name of a model has a price. They are data, apart from the code that counts.
package prices

import (
	_ "embed"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/cove-sandbox/cove/internal/pattern"
)

// Price is in dollars for a million tokens.
type Price struct {
	Provider   string  `yaml:"-" json:"provider,omitempty"`
	Models     string  `yaml:"models" json:"models"` // a pattern; an id, where there is a Source
	Above      int64   `yaml:"above" json:"above"`   // only of requests with more tokens of input
	Input      float64 `yaml:"input" json:"input"`
	Output     float64 `yaml:"output" json:"output"`
	CacheRead  float64 `yaml:"cache_read" json:"cache_read"`
	CacheWrite float64 `yaml:"cache_write" json:"cache_write"`
	Source     string  `yaml:"-" json:"source,omitempty"` // the page of a price that comes with Cove
	Read       string  `yaml:"-" json:"read,omitempty"`   // its day
}

//go:embed prices.yaml
var data []byte

// tables returns the prices by address. They are parsed once, since providers are read at each use.
var tables = sync.OnceValue(func() map[string][]Price {
	var doc struct {
		Tables []struct {
			At, Source, Read string
			Prices           []Price
		}
	}
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil // a test reads them
	}
	all := map[string][]Price{}
	for _, t := range doc.Tables {
		for _, p := range t.Prices {
			p.Source, p.Read = t.Source, t.Read
			all[t.At] = append(all[t.At], p)
		}
	}
	return all
})

// At returns the prices at an address of models, or at the usual addresses of a kind of provider.
func At(address string) []Price { return tables()[address] }

// version matches what follows an id in the name of one of its versions: a date as providers write it, latest, the
// number of a revision, and Bedrock's version. Whatever else follows is another model.
var version = pattern.New(`^([-@](20\d{6}|latest|default)|-20\d\d-\d\d-\d\d|-0\d\d)?(-v\d+(:\d+)?)?$`)

// Names reports whether the id of a price that comes with Cove names a model.
func (p Price) Names(model string) bool {
	rest, ok := strings.CutPrefix(model, p.Models)
	return ok && version.MatchString(rest)
}
