package gateway

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"net/http"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/github"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
)

// maxGitHubBody bounds the body of a request to GitHub's API, in bytes: no pull request or query is larger.
const maxGitHubBody = 1 << 20

// judgingGitHub is the stage that judges requests to GitHub's API.
func judgingGitHub(servers github.Servers, rules *rules) func(policy.Request, *http.Request) (leg, error) {
	return func(r policy.Request, h *http.Request) (leg, error) {
		path, ok := servers.At(r.Host, r.Path)
		if h == nil || !ok {
			return leg{}, nil
		}
		asked := github.Request{Method: r.Method, Path: path, Query: h.URL.RawQuery, Header: h.Header, Body: h.Body != nil}
		if h.URL.ForceQuery { // there is one, and it is empty
			asked.Query = cmp.Or(asked.Query, "?")
		}
		sent, err := github.Judge(asked, rules.grants(), func() ([]byte, error) { return readBody(h.Body) })
		if refused := (*github.Refusal)(nil); errors.As(err, &refused) {
			return leg{}, &proxy.Refusal{Code: cove.Forbidden, Rule: refused.Rule, Reason: refused.Reason,
				Remedy: refused.Remedy}
		}
		if sent != nil {
			replaceBody(h, sent)
		}
		return leg{}, err
	}
}

func readBody(body io.Reader) ([]byte, error) {
	if body == nil {
		return nil, nil
	}
	data, err := io.ReadAll(io.LimitReader(body, maxGitHubBody+1))
	switch {
	case err != nil:
		return nil, cove.Errorf(cove.InvalidArgument, "the body of the request broke off: %w", err)
	case len(data) > maxGitHubBody:
		return nil, cove.Errorf(cove.TooLarge, "a request to GitHub's API may have %d bytes", maxGitHubBody)
	}
	return data, nil
}

// replaceBody replaces the body of h by data, which is JSON.
func replaceBody(h *http.Request, data []byte) {
	h.Body = io.NopCloser(bytes.NewReader(data))
	h.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
	h.ContentLength = int64(len(data))
	h.Trailer = nil
	h.Header["Content-Type"] = []string{"application/json; charset=utf-8"}
	delete(h.Header, "Expect")
}
