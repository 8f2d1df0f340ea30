package gateway

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/cove-sandbox/cove/internal/egress/credential"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
	"github.com/cove-sandbox/cove/internal/packages"
)

const (
	// packageTrust is how long an index is believed. After that it is asked again before a file is served.
	packageTrust = time.Hour
	// indexPatience bounds the wait for an index, at the end of a file too.
	indexPatience = 10 * time.Second
	// maxIndexBytes bounds the indexes that a gateway holds in memory at a time; others wait.
	maxIndexBytes = 64 << 20
)

// indexAsker asks the indexes of packages for the gateway, within the policy of a sandbox.
type indexAsker struct {
	*decider
	proxy       func() *proxy.Server
	indexes     *semaphore.Weighted // bytes of the indexes of a gateway's routes in memory
	credentials *credential.Set
}

// with returns the asker of requests on which credentials are set.
func (p *indexAsker) with(credentials *credential.Set) *indexAsker {
	of := *p
	of.credentials = credentials
	return &of
}

// stated asks the indexes of a file for its digest, zero if none states it. answered is whether each of them answered.
func (p *indexAsker) stated(ctx context.Context, f packages.File) (digest packages.Digest, answered bool) {
	ctx, cancel := context.WithTimeout(ctx, indexPatience)
	defer cancel()
	if p.indexes.Acquire(ctx, f.Most) != nil {
		return digest, false
	}
	defer p.indexes.Release(f.Most)
	answered = true
	for _, index := range f.Index {
		body, status, ok := p.get(ctx, index, f.Accept, f.Most)
		if digest, stated := f.Digest(index, body); ok && stated {
			return digest, true
		}
		answered = answered && (ok || status == http.StatusNotFound || status == http.StatusGone)
	}
	return digest, answered
}

// get fetches an index as the gateway's own request, judged by the sandbox's policy and without any credential. The
// caller has acquired its memory. status is 0 if no answer came.
func (p *indexAsker) get(ctx context.Context, index, accept string, most int64) (body []byte, status int, ok bool) {
	u, err := url.Parse(index)
	if err != nil {
		return nil, 0, false
	}
	r := policy.Request{Layer: policy.LayerConnect}
	if r.Host, r.Port, err = policy.ParseAuthority(u.Host, defaultPort(u)); err != nil ||
		p.credentials.Binds(r.Host, r.Port) || p.judge(r).Action != policy.Allow {
		return nil, 0, false
	}
	r.Layer, r.Method = policy.LayerHTTP, http.MethodGet
	if r.Path, err = policy.CanonicalPath(u.EscapedPath()); err != nil {
		return nil, 0, false
	}
	v := p.judge(r)
	if v.Action != policy.Allow {
		return nil, 0, false
	}
	h := (&http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Accept": {accept}, "Accept-Encoding": {"identity"}, "User-Agent": {"cove"}}}).WithContext(ctx)
	res, err := p.proxy().RoundTrip(h, r, v,
		func(r policy.Request, h *http.Request) (proxy.Passage, error) { return enter(nil, r, h) })
	if err != nil {
		return nil, 0, false
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Encoding") != "" {
		return nil, res.StatusCode, false
	}
	body, err = io.ReadAll(io.LimitReader(res.Body, most+1))
	return body, res.StatusCode, err == nil && int64(len(body)) <= most
}

func defaultPort(u *url.URL) uint16 {
	if u.Scheme == "http" {
		return 80
	}
	return 443
}
