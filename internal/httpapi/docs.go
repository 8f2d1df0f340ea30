package httpapi

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
)

// docsPage renders /openapi.json without loading anything from elsewhere. It has one style and one script, both inline.
//
//go:embed docs.html
var docsPage string

// addDocs adds GET /openapi.json and GET /docs. Both are made when they are
// first asked for: most servers live within a single command, and never are.
func (s *Server) addDocs() {
	docs := s.document(huma.Operation{OperationID: "docs", Method: http.MethodGet, Path: "/docs", Tags: []string{"server"},
		Summary: "This documentation as a page"}, "text/html")
	openapi := s.document(huma.Operation{OperationID: "openapi", Method: http.MethodGet, Path: "/openapi.json",
		Tags: []string{"server"}, Summary: "This documentation as OpenAPI 3.1"}, "application/json")
	openapi.Responses["200"].Content["application/json"].Schema = &huma.Schema{Type: huma.TypeObject}
	document := sync.OnceValue(func() []byte {
		b, err := json.MarshalIndent(s.api.OpenAPI(), "", " ")
		if err != nil {
			panic("httpapi: the OpenAPI document cannot be encoded: " + err.Error()) // it is made of constants
		}
		return b
	})
	policy := sync.OnceValue(func() string {
		return "default-src 'none'; connect-src 'self'; style-src " + inlineHash(docsPage, "style") + "; script-src " +
			inlineHash(docsPage, "script") +
			"; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
	})

	s.api.Adapter().Handle(docs, func(ctx huma.Context) {
		ctx.SetHeader("Content-Type", "text/html; charset=utf-8")
		ctx.SetHeader("Content-Security-Policy", policy())
		ctx.BodyWriter().Write([]byte(docsPage))
	})
	s.api.Adapter().Handle(openapi, func(ctx huma.Context) {
		ctx.SetHeader("Content-Type", "application/json")
		ctx.BodyWriter().Write(document())
	})
}

// inlineHash is the source expression that permits the page's one inline element of that name and no other.
func inlineHash(page, element string) string {
	_, rest, _ := strings.Cut(page, "<"+element+">")
	text, _, _ := strings.Cut(rest, "</"+element+">")
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
