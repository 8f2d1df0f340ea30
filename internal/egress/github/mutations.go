package github

import (
	_ "embed"
	"sync"
)

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
