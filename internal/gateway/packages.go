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

	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/credential"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/packages"
	"github.com/cove-sandbox/cove/internal/packages/cache"
)

// packageStage serves files of packages from the cache that sandboxes share, and adds files to it.
//
// A file is stored only if the index of its registry states its digest. The gateway asks the index itself, with a
// request in which nothing is the sandbox's but the name of the package. Nothing of an answer is stored but the file.
type packageStage struct {
	*decider
	cache  *cache.Cache // nil: none
	behind bool         // an upstream proxy dials, and knows the addresses
	clock  clock.Clock
	log    *slog.Logger

	registries *registries
	asker      *indexAsker
	signers    *signers
	sums       *goSums
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
		asked := &packageRequest{packageStage: s, asker: s.asker.with(credentials), url: h.URL,
			tree: cache.Tree{Owner: s.owner, Registry: r.Host.Authority(r.Port)}}
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
	return !said(h.Header, "Cache-Control", "no-cache", "no-store")
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
	asker   *indexAsker // with the credentials of the request
	url     *url.URL
	tree    cache.Tree // for what npm reads
	problem string
}

const npm = "npm" // the tool, and its directory in the home less the dot

// wanted is a file of a package, and the question for the digest that its indexes state: zero if none does; answered
// is whether each of them answered.
type wanted struct {
	url     string
	lasting bool // the URL contains the digest: no other file is ever there
	npm     bool // npm reads it by its content
	stated  func(ctx context.Context) (digest packages.Digest, answered bool)
}

// find returns the file at the URL of the request.
func (p *packageRequest) find() (wanted, bool) {
	if f, ok := packages.Find(p.url, p.registries.of); ok {
		return wanted{url: f.URL, npm: f.Tool == npm, stated: func(ctx context.Context) (packages.Digest, bool) {
			return p.asker.stated(ctx, f)
		}}, true
	}
	if f, ok := packages.FindSigned(p.url, p.signers.trusted); ok {
		return wanted{url: f.URL, lasting: f.SHA256 != "", stated: func(ctx context.Context) (packages.Digest, bool) {
			return p.signers.stated(ctx, p.asker, f)
		}}, true
	}
	if m, ok := packages.FindModule(p.url, p.registries.of, p.sums.database); ok {
		return wanted{url: m.URL, stated: func(ctx context.Context) (packages.Digest, bool) {
			return p.sums.stated(ctx, p.asker, m)
		}}, true
	}
	return wanted{}, false
}

// send serves a file from the cache, or has next send the request and the cache take the answer.
func (p *packageRequest) send(h *http.Request, next http.RoundTripper) (*http.Response, decision.Stage, error) {
	f, ok := p.find()
	if !ok || !f.lasting && said(h.Header, "Cache-Control", "max-age=0") {
		res, err := next.RoundTrip(h)
		return res, decision.StageUpstream, err
	}
	if stored, ok := p.stored(h.Context(), f); ok {
		p.cache.Served(stored)
		p.share(f)
		return answerOf(h, stored), decision.StagePackages, nil
	}
	res, err := p.fetch(h, next, f)
	return res, decision.StageUpstream, err
}

// stored returns the stored file, which the index states now.
func (p *packageRequest) stored(ctx context.Context, f wanted) (*cache.Stored, bool) {
	stored, ok := p.cache.Open(f.url)
	if !ok {
		return nil, false
	}
	if age := p.clock.Now().Sub(stored.Checked); age >= 0 && age < packageTrust {
		return stored, true
	}
	switch stated, answered := f.stated(ctx); {
	case stated == stored.Stated:
		p.cache.Confirm(f.url)
		return stored, true
	case answered:
		p.cache.Drop(f.url)
	}
	stored.Close()
	return nil, false
}

// share has other sandboxes of the same owner find a stored file as npm's own.
func (p *packageRequest) share(f wanted) {
	if f.npm {
		p.cache.Share(p.tree, f.url)
	}
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
func (p *packageRequest) fetch(h *http.Request, next http.RoundTripper, f wanted) (*http.Response, error) {
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
		w = p.cache.Begin(f.url, res.ContentLength)
	}
	if w == nil {
		asked.end()
		return res, err
	}
	res.Body = &storing{ReadCloser: res.Body, request: p, w: w, asked: asked, of: f}
	return res, nil
}

// indexQuestion is one to the indexes of a file. Its end comes last.
type indexQuestion struct {
	cancel context.CancelFunc
	done   chan struct{}
	digest packages.Digest // zero: no index states one; valid once done is closed
}

func (p *packageRequest) ask(ctx context.Context, f wanted) *indexQuestion {
	ctx, cancel := context.WithCancel(ctx)
	q := &indexQuestion{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(q.done)
		q.digest, _ = f.stated(ctx)
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
	of      wanted
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
	switch digest := s.asked.answer(); {
	case digest == packages.Digest{}:
	case s.w.Commit(digest):
		s.request.share(s.of)
	default:
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
