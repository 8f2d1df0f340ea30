package gateway

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/github"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
)

const (
	maxGitHubBody = 1 << 20 // bytes of a request to GitHub's API: no pull request or query is larger
	maxGitHubName = 1 << 16 // bytes of GitHub's answer to which repositories nodes belong
	maxOwners     = 1024    // bounds the nodes whose repository is remembered
)

// gitHubStage judges requests to GitHub's API.
type gitHubStage struct {
	*decider
	proxy *proxy.Server
	after []stage // the stages of the gateway's own requests

	mu     sync.Mutex
	owners *simplelru.LRU[string, string] // OWNER/NAME by a node's server and id; guarded by mu
}

func newGitHubStage(d *decider, p *proxy.Server) *gitHubStage {
	owners, err := simplelru.NewLRU[string, string](maxOwners, nil)
	if err != nil { // the size is positive
		panic(err)
	}
	return &gitHubStage{decider: d, proxy: p, owners: owners}
}

func (s *gitHubStage) enter(r policy.Request, h *http.Request) (leg, error) {
	path, ok := s.github.At(r.Host, r.Path)
	if h == nil || !ok {
		return leg{}, nil
	}
	asked := github.Request{Server: s.github.Of(r.Host), Method: r.Method, Path: path, Query: h.URL.RawQuery,
		Header: h.Header, Body: h.Body != nil}
	if h.URL.ForceQuery { // there is one, and it is empty
		asked.Query = cmp.Or(asked.Query, "?")
	}
	grants := s.grants()
	judged, err := github.Judge(asked, grants, func() ([]byte, error) {
		if h.Body == nil {
			return nil, nil
		}
		return readBody(h.Body, maxGitHubBody, "a request to GitHub's API may have %d bytes")
	})
	if err == nil {
		err = s.checkNodes(r, h, asked.Server, grants, judged.Nodes)
	}
	if refused := (*github.Refusal)(nil); errors.As(err, &refused) {
		return leg{}, &proxy.Refusal{Code: cove.Forbidden, Rule: refused.Rule, Reason: refused.Reason,
			Remedy: refused.Remedy}
	}
	if judged.Body != nil {
		replaceBody(h, judged.Body)
	}
	return leg{}, err
}

// keyed reports whether a request may get a credential, as far as the filter of GitHub's API decides that.
func (d *decider) keyed(r policy.Request) bool {
	path, ok := d.github.At(r.Host, r.Path)
	return !ok || d.grants().Keyed(d.github.Of(r.Host), path)
}

// checkNodes requires that nodes of GraphQL belong to repositories of the grants, which it asks GitHub about with the
// sandbox's credential.
func (s *gitHubStage) checkNodes(r policy.Request, h *http.Request, server policy.Host, g github.Grants,
	nodes []string) error {
	known, unknown := map[string]string{}, []string(nil)
	s.mu.Lock()
	for _, id := range nodes {
		name, ok := s.owners.Get(r.Host.Authority(r.Port) + " " + id)
		if known[id] = name; !ok && !slices.Contains(unknown, id) {
			unknown = append(unknown, id)
		}
	}
	s.mu.Unlock()
	if len(unknown) > 0 {
		names, err := s.ownersOf(r, h, unknown)
		if err != nil {
			return err
		}
		s.mu.Lock()
		for i, id := range unknown {
			if known[id] = names[i]; names[i] != "" {
				s.owners.Add(r.Host.Authority(r.Port)+" "+id, names[i])
			}
		}
		s.mu.Unlock()
	}
	for _, id := range nodes {
		switch name := known[id]; {
		case name == "":
			return g.Outside(strconv.Quote(id) + " is in no repository that the token shows")
		case !g.Reach(server, name):
			return g.Outside(strconv.Quote(id) + " is in another repository, " + name)
		}
	}
	return nil
}

// ownersQuery asks for the repositories of nodes.
const ownersQuery = `query($ids:[ID!]!){nodes(ids:$ids){...on Repository{nameWithOwner}` +
	`...on RepositoryNode{repository{nameWithOwner}}...on PullRequestReviewThread{repository{nameWithOwner}}` +
	`...on Commit{repository{nameWithOwner}}}}`

// ownersOf asks the server of a request for the repositories of nodes, each as OWNER/NAME or "".
func (s *gitHubStage) ownersOf(r policy.Request, h *http.Request, nodes []string) ([]string, error) {
	body, err := json.Marshal(map[string]any{"query": ownersQuery, "variables": map[string]any{"ids": nodes}})
	if err != nil {
		return nil, err
	}
	u := *h.URL
	own := (&http.Request{Method: http.MethodPost, URL: &u, Host: h.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Accept": {"application/json"}, "Accept-Encoding": {"identity"}}}).WithContext(h.Context())
	for _, name := range []string{"Authorization", "User-Agent"} {
		if values := h.Header[name]; len(values) > 0 {
			own.Header[name] = values
		}
	}
	replaceBody(own, body)
	res, err := s.proxy.RoundTrip(own, r, s.judge(r),
		func(r policy.Request, h *http.Request) (proxy.Passage, error) { return enter(s.after, r, h) })
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	var answer struct {
		Data struct {
			Nodes []struct {
				NameWithOwner string
				Repository    struct{ NameWithOwner string }
			}
		}
	}
	if res.StatusCode == http.StatusOK {
		err = json.NewDecoder(io.LimitReader(res.Body, maxGitHubName)).Decode(&answer)
	}
	if res.StatusCode != http.StatusOK || err != nil || len(answer.Data.Nodes) != len(nodes) {
		return nil, cove.Errorf(cove.Unavailable, "GitHub does not say which repository %s is in (%s)",
			strings.Join(nodes, ", "), res.Status)
	}
	names := make([]string, len(nodes))
	for i, n := range answer.Data.Nodes {
		names[i] = cmp.Or(n.NameWithOwner, n.Repository.NameWithOwner)
	}
	return names, nil
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
