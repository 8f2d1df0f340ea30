package github

import _ "embed"

//go:embed mutations.txt
var mutationsTable string

// mutations are the known root fields of GraphQL mutations. Unknown fields are refused too; the entries that refuse
// give a reason.
var mutations = readMutations(mutationsTable)

func readMutations(table string) map[string]mutation {
	all := map[string]mutation{}
	for row := range tableRows(table, 2) {
		all[row[1]] = mutation{effect: effect(row[0]), event: eventRule(row[2])}
	}
	return all
}
