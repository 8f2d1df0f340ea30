// Package github owns the decision which requests to GitHub's API may leave a sandbox, in addition to policy's decision
// on hosts. It is pure.
//
// Reading is allowed, except for endpoints that show or make tokens and secrets. Writing is refused, with few known
// exceptions: opening a pull request, commenting, and commenting in a review, if the sandbox has the grant (Grants). An
// unknown request counts as a write, and is refused.
//
// REST requests are judged by a table of routes (routes.txt). Requests to the GraphQL API are parsed: every operation
// of a document is judged by the fields at the root of its mutations, through aliases and fragments, with the values of
// variables.
//
// The judged request is the one that is sent: a body that mattered is encoded again from its parsed form.
package github
