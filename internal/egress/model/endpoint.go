package model

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Endpoint is one call of a provider's API, by the name that its path contains.
type Endpoint string

const (
	Messages    Endpoint = "messages"              // Anthropic's
	CountTokens Endpoint = "messages/count_tokens" // costs nothing
	Chat        Endpoint = "chat/completions"      // OpenAI's, and of many others
	Completions Endpoint = "completions"           // its predecessor
	Responses   Endpoint = "responses"
	Embeddings  Endpoint = "embeddings"
	Models      Endpoint = "models" // lists models

	Generate       Endpoint = "generateContent" // Gemini's
	StreamGenerate Endpoint = "streamGenerateContent"
	CountContent   Endpoint = "countTokens" // costs nothing
	EmbedContent   Endpoint = "embedContent"
	EmbedContents  Endpoint = "batchEmbedContents"

	RawPredict       Endpoint = "rawPredict" // Vertex AI's, for models of Anthropic
	StreamRawPredict Endpoint = "streamRawPredict"
	CountPredict     Endpoint = "count-tokens:rawPredict" // costs nothing

	Invoke         Endpoint = "invoke" // Bedrock's
	InvokeStream   Endpoint = "invoke-with-response-stream"
	Converse       Endpoint = "converse"
	ConverseStream Endpoint = "converse-stream"
	CountInvoke    Endpoint = "count-tokens" // costs nothing
)

// Method returns the HTTP method of the endpoint.
func (e Endpoint) Method() string {
	if e == Models {
		return http.MethodGet
	}
	return http.MethodPost
}

var free = []Endpoint{Models, CountTokens, CountContent, CountPredict, CountInvoke}

// Counted reports whether calls count as use.
func (e Endpoint) Counted() bool { return !slices.Contains(free, e) }

// Kind is the API of a provider: it determines the form of errors and paths, and the default endpoints.
type Kind string

const (
	Anthropic Kind = "anthropic"
	OpenAI    Kind = "openai"
	Gemini    Kind = "gemini"
	Bedrock   Kind = "bedrock"
	Vertex    Kind = "vertex"
)

// Kinds lists all kinds.
var Kinds = []Kind{Anthropic, OpenAI, Gemini, Bedrock, Vertex}

// Kind returns the API that the endpoint belongs to, in whose form its errors are.
func (e Endpoint) Kind() Kind {
	switch e {
	case Messages, CountTokens, RawPredict, StreamRawPredict, CountPredict: // clients of the last three are Anthropic's
		return Anthropic
	case Generate, StreamGenerate, CountContent, EmbedContent, EmbedContents:
		return Gemini
	case Invoke, InvokeStream, Converse, ConverseStream, CountInvoke:
		return Bedrock
	}
	return OpenAI
}

// embeds reports whether answers have embeddings, and no words.
func (e Endpoint) embeds() bool { return e == Embeddings || e == EmbedContent || e == EmbedContents }

// form is the form of the paths of an endpoint. Where a model is part of the path, {model} stands for it.
type form struct {
	endpoint Endpoint
	path     string
}

// scheme is the form of all paths of a kind: VERSION/PLACE/PATH, of which not every kind has the first two.
type scheme struct {
	versions []string // of the gateway's paths
	// versioned says that the provider's own paths have the version, too. Elsewhere it is part of the base URL.
	versioned bool
	placed    bool // the paths have a project and a region
	forms     []form
	usual     []Endpoint // of a provider that states none
}

var plain = &scheme{versions: []string{"v1"}, forms: []form{
	{Messages, "messages"}, {CountTokens, "messages/count_tokens"}, {Chat, "chat/completions"},
	{Completions, "completions"}, {Responses, "responses"}, {Embeddings, "embeddings"}, {Models, "models"},
}}

// schemeOf returns the form of a kind's paths; nil if there is no such kind.
//
// Sources: ai.google.dev/api/generate-content; docs.aws.amazon.com/bedrock/latest/APIReference, the operations of the
// runtime; docs.cloud.google.com/vertex-ai/docs/reference/rest, publishers.models.
func schemeOf(k Kind) *scheme {
	switch k {
	case Anthropic:
		s := *plain
		s.usual = []Endpoint{Messages, CountTokens, Models}
		return &s
	case OpenAI:
		s := *plain
		s.usual = []Endpoint{Chat, Embeddings, Responses, Models}
		return &s
	case Gemini:
		return &scheme{versions: []string{"v1beta", "v1"}, versioned: true, forms: []form{
			{Generate, "models/{model}:generateContent"}, {StreamGenerate, "models/{model}:streamGenerateContent"},
			{CountContent, "models/{model}:countTokens"}, {EmbedContent, "models/{model}:embedContent"},
			{EmbedContents, "models/{model}:batchEmbedContents"}, {Models, "models"}}}
	case Bedrock:
		return &scheme{forms: []form{{Invoke, "model/{model}/invoke"},
			{InvokeStream, "model/{model}/invoke-with-response-stream"}, {Converse, "model/{model}/converse"},
			{ConverseStream, "model/{model}/converse-stream"}, {CountInvoke, "model/{model}/count-tokens"}}}
	case Vertex:
		const claude, gemini = "publishers/anthropic/models/", "publishers/google/models/"
		return &scheme{versions: []string{"v1", "v1beta1"}, versioned: true, placed: true, forms: []form{
			{CountPredict, claude + "count-tokens:rawPredict"}, {RawPredict, claude + "{model}:rawPredict"},
			{StreamRawPredict, claude + "{model}:streamRawPredict"},
			{Generate, gemini + "{model}:generateContent"}, {StreamGenerate, gemini + "{model}:streamGenerateContent"},
			{CountContent, gemini + "{model}:countTokens"}}}
	}
	return nil
}

// endpoints returns those of a provider that states none.
func (s *scheme) endpoints() []Endpoint {
	if s.usual != nil {
		return s.usual
	}
	return s.all()
}

func (s *scheme) all() (all []Endpoint) {
	for _, f := range s.forms {
		all = append(all, f.endpoint)
	}
	return all
}

func (s *scheme) path(e Endpoint) (string, bool) {
	i := slices.IndexFunc(s.forms, func(f form) bool { return f.endpoint == e })
	if i < 0 {
		return "", false
	}
	return s.forms[i].path, true
}

// Target describes a request to a provider.
type Target struct {
	Endpoint Endpoint
	Version  string // of the API, where it is part of the path
	Model    string // where it is part of the path
	place    string // the project and region, where they are part of the path
	raw      string // Model as the path has it
}

const modelPart = "{model}"

// match finds the target of a path below a base: the version, if the scheme has some, and the rest.
func (s *scheme) match(path string, versioned bool) (t Target, ok bool) {
	if versioned && s.versions != nil {
		t.Version, path, _ = strings.Cut(path, "/")
		if !slices.Contains(s.versions, t.Version) {
			return t, false
		}
	}
	// Google's SDKs leave the project and region out where they have a key of the API.
	if parts := strings.SplitN(path, "/", 5); s.placed && len(parts) == 5 && parts[0] == "projects" &&
		parts[2] == "locations" {
		t.place, path = strings.Join(parts[:4], "/"), parts[4]
	}
	for _, f := range s.forms {
		before, after, hasModel := strings.Cut(f.path, modelPart)
		if !hasModel {
			if path == f.path {
				t.Endpoint = f.endpoint
				return t, true
			}
			continue
		}
		raw, found := strings.CutPrefix(path, before)
		if found {
			raw, found = strings.CutSuffix(raw, after)
		}
		model, err := url.PathUnescape(raw)
		if !found || raw == "" || strings.Contains(raw, "/") || err != nil {
			continue
		}
		t.Endpoint, t.Model, t.raw = f.endpoint, model, raw
		return t, true
	}
	return t, false
}

// notServed are the endpoints that the gateway's own address does not have: Completions is of former models alone.
var notServed = []Endpoint{Completions}

// Served returns the endpoints that a path below the gateway's address may be of, one for each API that has it.
func Served(path string) (all []Endpoint) {
	for _, k := range []Kind{OpenAI, Gemini, Bedrock, Vertex} {
		t, ok := schemeOf(k).match(path, true)
		if ok && !slices.Contains(notServed, t.Endpoint) {
			all = append(all, t.Endpoint)
		}
	}
	return all
}
