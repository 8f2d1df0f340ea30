package gateway

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/credential"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
	"github.com/cove-sandbox/cove/internal/packages"
	"github.com/cove-sandbox/cove/internal/packages/cache"
)

const (
	// packageTrust is how long an index is believed. After that it is asked again before a file is served.
	packageTrust = time.Hour
	// indexPatience bounds the wait for an index, at the end of a file too.
	indexPatience = 10 * time.Second
	// maxIndexBytes bounds the indexes that a gateway holds in memory at a time; others wait.
	maxIndexBytes = 64 << 20
)

// packageStage serves files of packages from the cache that sandboxes share, and adds files to it.
//
// A file is stored only if the index of its registry states its digest. The gateway asks the index itself, with a
// request in which nothing is the sandbox's but the name of the package. Nothing of an answer is stored but the file.
type packageStage struct {
	*decider
	cache  *cache.Cache // nil: none
	proxy  func() *proxy.Server
	behind bool // an upstream proxy dials, and knows the addresses
	clock  clock.Clock
	log    *slog.Logger

	registries *registries
	indexes    *semaphore.Weighted // bytes of the indexes of a gateway's routes in memory
}

// registries hold where the machine's tools get packages from. Each tool is asked once: some take a second to answer.
type registries struct {
	machine policy.Machine

	mu    sync.Mutex
	found map[string][]policy.Endpoint // guarded by mu; by tool
}

func (r *registries) of(tool string) ([]policy.Endpoint, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	found, asked := r.found[tool]
	if !asked && r.machine.Registry != nil {
		found, _ = r.machine.Registry(tool) // a tool without an answer has no registries
		r.found[tool] = found
	}
	return found, nil
}

// stage returns the stage of requests on which credentials are set.
func (s *packageStage) stage(credentials *credential.Set) func(policy.Request, *http.Request) (leg, error) {
	return func(r policy.Request, h *http.Request) (leg, error) {
		if s.cache == nil || h == nil || !impersonal(h) || credentials.Binds(r.Host, r.Port) || !s.shares() {
			return leg{}, nil
		}
		asked := &packageRequest{packageStage: s, credentials: credentials, url: h.URL}
		return leg{send: asked.send, problem: func() string { return asked.problem }}, nil
	}
}

// shares reports whether the sandbox uses the cache.
func (s *packageStage) shares() bool {
	return !slices.ContainsFunc(s.both(), policy.Unshared)
}

// plainHeaders are the headers of requests whose answers are the same for every client. npm adds some of its own.
var plainHeaders = []string{"Accept", "Accept-Encoding", "Accept-Language", "Cache-Control", "Referer", "User-Agent"}

// impersonal reports whether a request is for a whole file, and shows nothing of who asks.
func impersonal(h *http.Request) bool {
	if h.Method != http.MethodGet || h.Body != nil && h.Body != http.NoBody {
		return false
	}
	for name := range h.Header {
		if !slices.Contains(plainHeaders, name) && !strings.HasPrefix(name, "Npm-") && !strings.HasPrefix(name, "Pacote-") {
			return false
		}
	}
	return !said(h.Header, "Cache-Control", "no-cache", "no-store", "max-age=0")
}

// said reports whether a header has one of some elements.
func said(h http.Header, name string, elements ...string) bool {
	for e := range strings.SplitSeq(strings.Join(h.Values(name), ","), ",") {
		if slices.Contains(elements, strings.ToLower(strings.TrimSpace(e))) {
			return true
		}
	}
	return false
}

// packageRequest is one request that may be for a file of a package.
type packageRequest struct {
	*packageStage
	credentials *credential.Set
	url         *url.URL
	problem     string
}

// send serves a file from the cache, or has next send the request and the cache take the answer.
func (p *packageRequest) send(h *http.Request, next http.RoundTripper) (*http.Response, decision.Stage, error) {
	f, ok := packages.Find(p.url, p.registries.of)
	if !ok {
		res, err := next.RoundTrip(h)
		return res, decision.StageUpstream, err
	}
	if stored, ok := p.stored(h.Context(), f); ok {
		p.cache.Served(stored)
		return answerOf(h, stored), decision.StagePackages, nil
	}
	res, err := p.fetch(h, next, f)
	return res, decision.StageUpstream, err
}

// stored returns the stored file, which the index states now.
func (p *packageRequest) stored(ctx context.Context, f packages.File) (*cache.Stored, bool) {
	stored, ok := p.cache.Open(f.URL)
	if !ok {
		return nil, false
	}
	if age := p.clock.Now().Sub(stored.Checked); age >= 0 && age < packageTrust {
		return stored, true
	}
	switch stated, answered := p.stated(ctx, f); {
	case stated == stored.Stated:
		p.cache.Confirm(f.URL)
		return stored, true
	case answered:
		p.cache.Drop(f.URL)
	}
	stored.Close()
	return nil, false
}

func answerOf(h *http.Request, s *cache.Stored) *http.Response {
	return &http.Response{Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{
			"Content-Type":   {"application/octet-stream"},
			"Content-Length": {strconv.FormatInt(s.Size, 10)},
			"Cache-Status":   {"cove; hit"}, // RFC 9211
		}, Body: s, ContentLength: s.Size, Request: h}
}

// fetch has the origin answer, and the index asked meanwhile.
func (p *packageRequest) fetch(h *http.Request, next http.RoundTripper, f packages.File) (*http.Response, error) {
	asked := p.ask(h.Context(), f)
	var from netip.Addr
	traced := httptrace.WithClientTrace(h.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		if at, err := netip.ParseAddrPort(i.Conn.RemoteAddr().String()); err == nil {
			from = at.Addr().Unmap()
		}
	}})
	res, err := next.RoundTrip(h.WithContext(traced))
	var w *cache.Writer
	if err == nil && cacheable(res) && p.everybodys(from) {
		w = p.cache.Begin(f.URL, res.ContentLength)
	}
	if w == nil {
		asked.end()
		return res, err
	}
	res.Body = &storing{ReadCloser: res.Body, request: p, w: w, asked: asked}
	return res, nil
}

// indexQuestion is one to the indexes of a file. Its end comes last.
type indexQuestion struct {
	cancel context.CancelFunc
	done   chan struct{}
	digest packages.Digest // zero: no index states one; valid once done is closed
}

func (p *packageRequest) ask(ctx context.Context, f packages.File) *indexQuestion {
	ctx, cancel := context.WithCancel(ctx)
	q := &indexQuestion{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(q.done)
		q.digest, _ = p.stated(ctx, f)
	}()
	return q
}

func (q *indexQuestion) answer() packages.Digest {
	<-q.done
	return q.digest
}

func (q *indexQuestion) end() {
	q.cancel()
	<-q.done
}

// everybodys reports whether each sandbox whose policy allows the name could be answered from an address.
func (p *packageRequest) everybodys(from netip.Addr) bool {
	_, reserved := policy.Reserved(from)
	return p.behind || !reserved ||
		slices.ContainsFunc(p.machine.Private, func(open netip.Prefix) bool { return open.Contains(from) })
}

// cacheable reports whether an answer is a whole file as it is published.
func cacheable(res *http.Response) bool {
	return res.StatusCode == http.StatusOK && res.Header.Get("Content-Encoding") == "" && !res.Uncompressed &&
		res.Header.Get("Content-Range") == "" && !said(res.Header, "Cache-Control", "no-store", "private") &&
		!said(res.Header, "Vary", "*", "cookie", "authorization")
}

// storing is the body of an answer, which the cache takes as well. Its end waits for the index.
type storing struct {
	io.ReadCloser
	request *packageRequest
	w       *cache.Writer // nil after the end
	asked   *indexQuestion
}

func (s *storing) Read(b []byte) (int, error) {
	n, err := s.ReadCloser.Read(b)
	if s.w == nil {
		return n, err
	}
	_, _ = s.w.Write(b[:n]) // it never fails
	switch {
	case err == io.EOF:
		s.commit()
	case err != nil:
		s.end()
	}
	return n, err
}

func (s *storing) commit() {
	defer s.end()
	digest := s.asked.answer()
	if digest != (packages.Digest{}) && !s.w.Commit(digest) {
		s.request.cache.Mismatch()
		s.request.problem = "the package is not what its registry's index states"
		s.request.log.Warn("a package is not what its registry's index states", "host", s.request.url.Host)
	}
}

func (s *storing) end() {
	if s.w != nil {
		s.w.Abort()
		s.w = nil
		s.asked.end()
	}
}

// Close implements io.Closer.
func (s *storing) Close() error {
	s.end()
	return s.ReadCloser.Close()
}

// stated asks the indexes of a file for its digest, zero if none states it. answered is whether each of them answered.
func (p *packageRequest) stated(ctx context.Context, f packages.File) (digest packages.Digest, answered bool) {
	ctx, cancel := context.WithTimeout(ctx, indexPatience)
	defer cancel()
	if p.indexes.Acquire(ctx, f.Most) != nil {
		return digest, false
	}
	defer p.indexes.Release(f.Most)
	answered = true
	for _, index := range f.Index {
		body, status, ok := p.index(ctx, index, f)
		if digest, stated := f.Digest(index, body); ok && stated {
			return digest, true
		}
		answered = answered && (ok || status == http.StatusNotFound || status == http.StatusGone)
	}
	return digest, answered
}

// index fetches an index as the gateway's own request, judged by the sandbox's policy and without any credential.
func (p *packageRequest) index(ctx context.Context, index string, f packages.File) (body []byte, status int, ok bool) {
	u, err := url.Parse(index)
	if err != nil {
		return nil, 0, false
	}
	r := policy.Request{Layer: policy.LayerConnect}
	if r.Host, r.Port, err = policy.ParseAuthority(u.Host, 443); err != nil || p.credentials.Binds(r.Host, r.Port) ||
		p.judge(r).Action != policy.Allow {
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
		Header: http.Header{"Accept": {f.Accept}, "Accept-Encoding": {"identity"}, "User-Agent": {"cove"}}}).WithContext(ctx)
	res, err := p.proxy().RoundTrip(h, r, v,
		func(r policy.Request, h *http.Request) (proxy.Passage, error) { return enter(nil, r, h) })
	if err != nil {
		return nil, 0, false
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Encoding") != "" {
		return nil, res.StatusCode, false
	}
	body, err = io.ReadAll(io.LimitReader(res.Body, f.Most+1))
	return body, res.StatusCode, err == nil && int64(len(body)) <= f.Most
}
