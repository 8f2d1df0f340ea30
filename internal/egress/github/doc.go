// Package github owns the decision which requests to GitHub's API may leave a
// sandbox, beside what policy says of its hosts. It is pure.
//
// Reading is allowed, but for what shows or makes tokens and secrets. Writing
// is refused, unless it is one of the few known ways to open a pull request, to
// comment, or to comment in a review, and the sandbox may do that (Grants).
// What is not known here is a write, and is refused.
//
// REST requests are judged by a table of routes (routes.go). Requests to the
// GraphQL API are parsed: every operation of a document is judged by the fields
// at the root of its mutations, through aliases and fragments, with the values
// of variables.
//
// What was judged is what is sent: a body that mattered is written anew from
// what was understood of it.
package github
