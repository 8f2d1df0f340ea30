package gateway

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove/internal/egress/credential"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
)

const gitEndpoint = "git/credentials" // serves git's credential protocol

// providerHeader selects one of a sandbox's providers. formerHeader is its name in earlier versions.
const (
	providerHeader = "X-Cove-Provider"
	formerHeader   = "X-Cove-Profile"
)

type endpoints struct {
	models       *models
	credentials  *credential.Set
	placeholders map[string]string
}

// serve returns the origin of a request to an endpoint, or the answer to it.
func (e endpoints) serve(r policy.Request, h *http.Request) (*proxy.Origin, *proxy.Answer) {
	path, below := strings.CutPrefix(r.Path, gatewayPath+"/")
	if below && r.Path == endpointPath+gitEndpoint {
		return nil, e.gitCredentials(h)
	}
	var of []model.Endpoint
	if below {
		of = model.Served(path)
	}
	asked := slices.IndexFunc(of, func(e model.Endpoint) bool { return e.Method() == r.Method })
	switch {
	case len(of) == 0:
		return nil, answerTo(model.OpenAI, model.Refuse(http.StatusNotFound, "the gateway has no endpoint %.100q", r.Path))
	case asked < 0:
		return nil, wrongMethod(of[0], h)
	}
	p, at, refusal := e.models.provider(path, r.Method, of[asked], h.Header)
	if refusal != nil {
		return nil, answerTo(of[asked].Kind(), refusal)
	}
	for name, value := range p.Headers {
		if h.Header.Get(name) == "" {
			h.Header.Set(name, value)
		}
	}
	if p.credentials == nil { // the sandbox holds a placeholder at best
		h.Header.Del("Authorization")
		h.Header.Del("X-Api-Key")
		h.Header.Del("X-Goog-Api-Key")
		h.Header.Del("X-Amz-Security-Token")
	}
	return &proxy.Origin{URL: p.URL(at), Prepare: func(r policy.Request, h *http.Request) (proxy.Passage, error) {
		return enter(p.pipeline, r, h)
	}}, nil
}

// provider returns the provider that a request names, if the sandbox may use it, or the first with the endpoint; and
// what the request asks of it. e is an endpoint that the path is of.
func (m *models) provider(path, method string, e model.Endpoint, h http.Header) (*provider, model.Target,
	*model.Refusal) {
	named := append(h.Values(providerHeader), h.Values(formerHeader)...)
	h.Del(providerHeader)
	h.Del(formerHeader)
	var names []string
	for _, p := range m.providers {
		t, has := p.Serves(path, method)
		if len(named) == 0 && has || len(named) == 1 && p.Name == strings.TrimSpace(named[0]) {
			if !has {
				return nil, t, model.Refuse(http.StatusNotFound, "the provider %s has no %s; it has %s", p.Name, e,
					list(p.Endpoints))
			}
			return p, t, nil
		}
		names = append(names, p.Name)
	}
	switch {
	case len(names) == 0:
		return nil, model.Target{}, model.Refuse(http.StatusForbidden,
			"this sandbox may use no model provider: start it with --model-provider NAME")
	case len(named) > 0:
		return nil, model.Target{}, model.Refuse(http.StatusForbidden,
			"this sandbox may not use the provider %.80q; it may use %s", strings.Join(named, ","), strings.Join(names, ", "))
	}
	return nil, model.Target{}, model.Refuse(http.StatusNotFound, "no provider of this sandbox's has %s; it may use %s", e,
		strings.Join(names, ", "))
}

func list(endpoints []model.Endpoint) string {
	var names []string
	for _, e := range endpoints {
		names = append(names, string(e))
	}
	return strings.Join(names, ", ")
}

// wrongMethod makes clients that want a WebSocket continue without one, as Codex does.
func wrongMethod(e model.Endpoint, h *http.Request) *proxy.Answer {
	status := http.StatusMethodNotAllowed
	if h.Header.Get("Upgrade") != "" {
		status = http.StatusUpgradeRequired
	}
	a := answerTo(e.Kind(), model.Refuse(status, "%s takes %s", e, e.Method()))
	a.Header.Set("Allow", e.Method())
	return a
}

const maxGitInput = 64 << 10 // bytes; git's own lines are at most 65535

// gitCredentials answers git's credential protocol with placeholders, which the gateway replaces on requests to the
// host. It answers nothing about other hosts, and ignores store and erase.
func (e endpoints) gitCredentials(h *http.Request) *proxy.Answer {
	say := func(status int, text, reason string) *proxy.Answer {
		return &proxy.Answer{Status: status, Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}},
			Body: []byte(text), Reason: reason}
	}
	if h.Method != http.MethodPost {
		return say(http.StatusMethodNotAllowed, "POST what git credential writes\n", "the git endpoint takes POST")
	}
	in, err := io.ReadAll(io.LimitReader(h.Body, maxGitInput+1))
	if err != nil || len(in) > maxGitInput {
		return say(http.StatusBadRequest, "that is too much\n", "what git asks cannot be read")
	}
	user, password, ok := gitLogin(in, func(host policy.Host, port uint16) (string, string, bool) {
		return e.credentials.Login(host, port, e.placeholders)
	})
	if operation := h.URL.Query().Get("operation"); !ok || operation != "" && operation != "get" {
		return say(http.StatusOK, "", "")
	}
	return say(http.StatusOK, "username="+user+"\npassword="+password+"\n", "")
}

// gitLogin parses git-credential(1)'s attributes, ignoring unknown ones, and answers for the host named, over https.
func gitLogin(in []byte, login func(policy.Host, uint16) (user, password string, ok bool)) (user, password string,
	ok bool) {
	said := map[string]string{}
	for line := range bytes.Lines(in) {
		name, value, found := strings.Cut(strings.TrimRight(string(line), "\r\n"), "=")
		if found {
			said[name] = value
		}
	}
	if said["protocol"] != "https" || said["password"] != "" {
		return "", "", false
	}
	host, port, err := policy.ParseAuthority(said["host"], 443)
	if err != nil {
		return "", "", false
	}
	if user, password, ok = login(host, port); !ok || said["username"] != "" && said["username"] != user {
		return "", "", false
	}
	return user, password, true
}
