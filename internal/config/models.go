package config

import (
	"os"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/prices"
)

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
	usual, _ := model.ParseBudget(c.Gateway.Budget) // it is valid or empty
	for _, p := range providers {
		if err := p.Judge(usual, ""); err != nil {
			notes = append(notes, "gateway.budget: requests to "+p.Name+" are refused: "+err.Error())
		}
		for _, k := range keys {
			grant, _ := k.Grant() // it is valid
			if err := p.Judge(grant.Models, ""); err != nil {
				notes = append(notes, "model_budget of "+k.Name+": requests to "+p.Name+" are refused: "+err.Error())
			}
		}
	}
	return notes, err
}
