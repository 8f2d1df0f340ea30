package gateway

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
	"github.com/cove-sandbox/cove/internal/git/inspect"
	"github.com/cove-sandbox/cove/internal/git/pktline"
	git "github.com/cove-sandbox/cove/internal/git/policy"
	"github.com/cove-sandbox/cove/internal/git/smart"
)

const ruleGit = "gateway: git" // the rule of refusals that no policy makes

// Types of messages in the protocol.
const (
	askedType    = "application/x-git-upload-pack-request"
	objectsType  = "application/x-git-upload-pack-result"
	commandsType = "application/x-git-receive-pack-request"
)

type gitStage struct {
	*decider
	holds  *holds
	proxy  *proxy.Server          // sends the gateway's own requests to git servers
	after  []stage                // which those requests pass: the stages after this one
	packs  Inspector              // see Options
	pushed func(string, []string) // see Options
	dir    string                 // for pushes until they are judged; see Options.Spool
	log    *slog.Logger
	repos  gitRepos
	places chan struct{} // one for each push in dir
}

// gitRights are the policy for one repository and, during a change, the next one: all of them must agree.
type gitRights []*git.Policy

func (g gitRights) sees(ref, head string) bool {
	return !slices.ContainsFunc(g, func(p *git.Policy) bool { return !p.Sees(ref, head) })
}

func (g gitRights) least(judge func(*git.Policy) git.Verdict) (least git.Verdict) {
	for i, p := range g {
		if v := judge(p); i == 0 || v.Action < least.Action {
			least = v
		}
	}
	return least
}

func (g gitRights) all(what func(*git.Policy) bool) bool {
	return !slices.ContainsFunc(g, func(p *git.Policy) bool { return !what(p) })
}

// rightsTo returns the rights for a repository, or nil if there are none.
func (s *gitStage) rightsTo(r policy.Request, repo string) gitRights {
	all := gitRights{}
	for _, p := range s.both() {
		rights := p.Git(r.Host, r.Port, repo)
		if rights == nil {
			return nil
		}
		all = append(all, rights)
	}
	return all
}

type gitRequest struct {
	*gitStage
	request policy.Request
	http    *http.Request
	asked   smart.Request
	rights  gitRights
	repo    *gitRepo
	// refused is the last refusal by a stage of one of the gateway's own requests to the server.
	refused atomic.Pointer[proxy.Refusal]
	// answer is the server's answer to the sandbox, as it is passed on; nil before it, and where it is not judged.
	answer interface{ Refused() string }
}

// inspected returns the sandbox whose request is inspected.
func (g *gitRequest) inspected() inspect.Sandbox {
	return inspect.Sandbox{ID: g.sandbox, Owner: g.owner}
}

func refuseGit(rule, reason string) *proxy.Refusal {
	return &proxy.Refusal{Code: cove.Forbidden, Rule: rule, Reason: reason}
}

// unanswerable refuses a request that cannot be judged now; the hint of the cause, which may be nil, is the remedy.
func unanswerable(reason string, cause error) *proxy.Refusal {
	return &proxy.Refusal{Code: cove.Unavailable, Rule: ruleGit, Reason: reason, Remedy: cove.ErrorHint(cause)}
}

// refuseFetch answers like a server without the wanted objects: git shows it as a remote error.
func refuseFetch(reason string) *proxy.Answer {
	var b bytes.Buffer
	pktline.NewWriter(&b).Text("ERR %s", reason)
	return &proxy.Answer{Status: http.StatusOK, Header: http.Header{"Content-Type": {objectsType}}, Body: b.Bytes(),
		Rule: ruleGit, Reason: reason}
}

func plainMessage(err error) string {
	return strings.TrimSuffix(err.Error(), " ("+cove.ErrorHint(err)+")")
}

// saidProblem returns the message with which the server has ended its answer, or "".
func (g *gitRequest) saidProblem() string {
	if g.answer == nil || g.answer.Refused() == "" {
		return ""
	}
	return plainMessage(smart.Refused(g.answer.Refused()))
}

// version settles the version of the protocol, so that the server reads what was judged.
func (g *gitRequest) version() smart.Version {
	v := smart.ParseVersion(g.http.Header["Git-Protocol"])
	if v == 2 && g.asked.Service == smart.Push { // which is the same in all
		v = 0
	}
	delete(g.http.Header, "Git-Protocol")
	if header := v.Header(); header != "" {
		g.http.Header["Git-Protocol"] = []string{header}
	}
	return v
}

// body reads the decoded body of a request, which must be of a type.
func (g *gitRequest) body(kind string, most int64) ([]byte, error) {
	r, err := g.decoded(kind)
	if err != nil {
		return nil, err
	}
	return readBody(r, most, "the request has more than %d bytes")
}

// readBody reads a body of at most so many bytes; tooLarge says so of a larger one.
func readBody(body io.Reader, most int64, tooLarge string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(body, most+1))
	switch {
	case err != nil:
		return nil, cove.Errorf(cove.InvalidArgument, "the body of the request broke off: %w", err)
	case int64(len(data)) > most:
		return nil, cove.Errorf(cove.TooLarge, tooLarge, most)
	}
	return data, nil
}

// decoded returns the body of a request as it is judged, and sent on.
func (g *gitRequest) decoded(kind string) (io.Reader, error) {
	if got := g.http.Header["Content-Type"]; kind != "" && (len(got) != 1 || got[0] != kind) {
		return nil, refuseGit(ruleGit, "the body of a request of git's has to be "+kind)
	}
	if g.http.Body == nil {
		return bytes.NewReader(nil), nil
	}
	switch coding := strings.ToLower(strings.Join(g.http.Header["Content-Encoding"], ",")); coding {
	case "", "identity":
		return g.http.Body, nil
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(g.http.Body)
		if err != nil {
			return nil, cove.Errorf(cove.InvalidArgument, "the body of the request is not gzip: %w", err)
		}
		return z, nil
	default:
		return nil, refuseGit(ruleGit, fmt.Sprintf("a body in the coding %.30q cannot be judged", coding))
	}
}

// carry replaces the body of a request by the one that was judged. open may be called again: a request that has met
// the end of an idle connection is sent once more.
func carry(h *http.Request, size int64, open func() io.Reader) {
	if h.Body != nil {
		h.Body.Close()
	}
	h.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(open()), nil }
	h.Body, _ = h.GetBody()
	h.ContentLength, h.Trailer = size, nil
	if size == 0 {
		h.Body, h.GetBody = http.NoBody, nil
	}
	for _, name := range []string{"Content-Encoding", "Content-Length", "Content-Md5", "Digest", "Expect"} {
		delete(h.Header, name)
	}
}

// carryQuestion does the same with a request that changes nothing on the server, as that for objects. It may also be
// sent again where it is not known whether the server has begun with it, which is how a connection ends that the server
// closes while it is used again.
func carryQuestion(h *http.Request, body []byte) {
	carry(h, int64(len(body)), func() io.Reader { return bytes.NewReader(body) })
	h.Header["X-Idempotency-Key"] = nil // tells net/http, and sends nothing
}

// replaceable refuses an answer that cannot be judged as what it should be.
func replaceable(res *http.Response, kind string) error {
	if got := res.Header.Get("Content-Type"); got != kind {
		return unanswerable(fmt.Sprintf(
			"the server does not answer as a git server does (smart HTTP): its answer is of type %.60q", got), nil)
	}
	if coding := res.Header.Get("Content-Encoding"); cmp.Or(coding, "identity") != "identity" {
		return unanswerable(fmt.Sprintf("the server answers in the coding %.30q, which was not requested", coding), nil)
	}
	return nil
}

func replaceAnswer(res *http.Response, body io.Reader) {
	res.Body = filtered{body, res.Body}
	res.ContentLength = -1
	for _, name := range []string{"Content-Length", "Etag", "Content-Md5", "Digest", "Last-Modified", "Accept-Ranges"} {
		res.Header.Del(name)
	}
}

// filtered reads the filtered form of an answer, and closes all of it.
type filtered struct {
	io.Reader
	io.Closer
}

// gitRepos are the repositories for which a sandbox has sent requests.
type gitRepos struct {
	mu  sync.Mutex
	all *simplelru.LRU[string, *gitRepo]
}

// maxRepos bounds the repositories of a sandbox with state. The server is asked again about any other.
const maxRepos = 64

func (g *gitRepos) of(name string) *gitRepo {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all == nil {
		g.all, _ = simplelru.NewLRU[string, *gitRepo](maxRepos, nil) // the size is positive
	}
	r, ok := g.all.Get(name)
	if !ok {
		r = &gitRepo{shown: map[string]bool{}, gone: map[string]string{}}
		g.all.Add(name, r)
	}
	return r
}

// gitRepo is the state of a repository for one sandbox: the objects that it has seen, and its pushes.
type gitRepo struct {
	mu    sync.Mutex
	head  string
	shown map[string]bool   // object ids of refs it sees
	gone  map[string]string // deleted refs, with their last object id
	whole atomic.Bool       // the server cannot leave objects out
}

const maxShown = 600_000 // bounds the object ids that are remembered; beyond it they are forgotten together

func (r *gitRepo) headOf() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.head
}

func (r *gitRepo) found(head string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.head = head
}

func (r *gitRepo) show(_, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.shown) >= maxShown {
		r.shown = map[string]bool{}
	}
	r.shown[id] = true
}

func (r *gitRepo) missing(ids []string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return r.shown[id] })
}

// was returns the last object id of a ref that the sandbox has deleted, or "".
func (r *gitRepo) was(ref string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gone[ref]
}

const maxGone = 10_000 // bounds the deletions that are remembered

// made records the updates of a push that the server has made.
func (r *gitRepo) made(updates []git.Update) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, u := range updates {
		if !u.Deletes() {
			r.shown[u.New] = true
			delete(r.gone, u.Ref)
		} else if len(r.gone) < maxGone {
			r.gone[u.Ref] = u.Old
		}
	}
}
