package httpapi

import (
	"compress/gzip"
	"embed"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
)

// viewer is the page that shows /openapi.json, with all that it loads; see viewer/README.md.
//
//go:embed viewer/page.* viewer/*.gz viewer/LICENSE* viewer/NOTICE
var viewer embed.FS

// viewerFiles are the files that GET /docs/{file} serves, with their types. Files with .gz are served compressed.
var viewerFiles = map[string]struct{ file, kind string }{
	"page.js":       {"page.js", "text/javascript"},
	"page.css":      {"page.css", "text/css"},
	"swagger-ui.js": {"swagger-ui.js.gz", "text/javascript"}, "swagger-ui.css": {"swagger-ui.css.gz", "text/css"},
	"LICENSE": {"LICENSE", "text/plain"}, "NOTICE": {"NOTICE", "text/plain"},
	"LICENSES-of-parts.txt": {"LICENSES-of-parts.txt", "text/plain"},
}

// viewerPolicy has the page load its own files, and ask this server. Its pictures are within its style sheet.
const viewerPolicy = "default-src 'none'; connect-src 'self'; style-src 'self'; script-src 'self'; img-src data:; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// addDocs adds GET /openapi.json, and GET /docs with its files. The document is made when it is first asked for: most
// servers live within a single command, and never are.
func (s *edge) addDocs() {
	page := s.document(huma.Operation{OperationID: "docs", Method: http.MethodGet, Path: "/docs", Tags: []string{"server"},
		Security: []map[string][]string{{}}, Summary: "This documentation as a page",
		Description: "Without a key: the page asks for it, and uses it for its own requests."}, "text/html")
	s.api.Adapter().Handle(page, func(ctx huma.Context) {
		ctx.SetHeader("Content-Security-Policy", viewerPolicy)
		s.serveViewer(ctx, "page.html", "text/html")
	})

	part := s.document(huma.Operation{OperationID: "docs-file", Method: http.MethodGet, Path: "/docs/{file}",
		Tags: []string{"server"}, Security: []map[string][]string{{}}, Summary: "A file of that page",
		Description: "Its script, its style sheet or their licenses, without a key.",
		Parameters:  []*huma.Param{{Name: "file", In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString}}},
	}, "text/javascript")
	for _, kind := range []string{"text/css", "text/plain"} {
		part.Responses["200"].Content[kind] = part.Responses["200"].Content["text/javascript"]
	}
	part.Responses["404"] = &huma.Response{Description: http.StatusText(http.StatusNotFound),
		Content: map[string]*huma.MediaType{"application/json": {
			Schema: s.api.OpenAPI().Components.Schemas.Schema(typeOf[api.Error](), true, "")}}}
	s.api.Adapter().Handle(part, func(ctx huma.Context) {
		f, ok := viewerFiles[ctx.Param("file")]
		if !ok {
			writeError(exchangeOf(ctx.Context()), cove.Errorf(cove.NotFound, "the page has no such file"))
			return
		}
		s.serveViewer(ctx, f.file, f.kind)
	})

	openapi := s.document(huma.Operation{OperationID: "openapi", Method: http.MethodGet, Path: "/openapi.json",
		Tags: []string{"server"}, Summary: "This documentation as OpenAPI 3.1",
		Description: "Of the operations that this server has."}, "application/json")
	openapi.Responses["200"].Content["application/json"].Schema = &huma.Schema{Type: huma.TypeObject}
	document := sync.OnceValue(func() []byte {
		b, err := json.MarshalIndent(s.api.OpenAPI(), "", " ")
		if err != nil {
			panic("httpapi: the OpenAPI document cannot be encoded: " + err.Error()) // it is made of constants
		}
		return b
	})
	s.api.Adapter().Handle(openapi, func(ctx huma.Context) {
		ctx.SetHeader("Content-Type", "application/json")
		ctx.BodyWriter().Write(document())
	})
}

// serveViewer writes a file of the page, compressed as it is for a client that takes it so.
func (s *edge) serveViewer(ctx huma.Context, name, kind string) {
	file, err := viewer.Open("viewer/" + name)
	if err != nil {
		writeError(exchangeOf(ctx.Context()), err)
		return
	}
	defer file.Close()
	ctx.SetHeader("Content-Type", kind+"; charset=utf-8")
	content := io.Reader(file)
	if strings.HasSuffix(name, ".gz") {
		ctx.SetHeader("Vary", "Accept-Encoding")
		if strings.Contains(ctx.Header("Accept-Encoding"), "gzip") {
			ctx.SetHeader("Content-Encoding", "gzip")
		} else if content, err = gzip.NewReader(file); err != nil {
			writeError(exchangeOf(ctx.Context()), err)
			return
		}
	}
	io.Copy(ctx.BodyWriter(), content) // a client that has gone needs no answer
}
