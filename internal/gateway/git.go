package gateway

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
	"github.com/cove-sandbox/cove/internal/git/pktline"
	git "github.com/cove-sandbox/cove/internal/git/policy"
	"github.com/cove-sandbox/cove/internal/git/smart"
)

// ruleGit is that of refusals that no policy makes.
const ruleGit = "gateway: git"

// Types of messages in the protocol.
const (
	askedType    = "application/x-git-upload-pack-request"
	objectsType  = "application/x-git-upload-pack-result"
	commandsType = "application/x-git-receive-pack-request"
)

// gitRights are what the policy lets a sandbox do with one repository, and
// during a change what the next one does, too: all of them have to agree.
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

// gitHost reports whether what git is asked for at a host is judged.
func (w *Way) gitHost(h policy.Host) bool {
	return w.next.Load().GitHost(h) || w.policy.Load().GitHost(h)
}

// gitRights are those of a repository; nil where there are none.
func (w *Way) gitRights(r policy.Request, repo string) gitRights {
	all := gitRights{}
	for _, p := range []*policy.Policy{w.next.Load(), w.policy.Load()} { // in this order: see change
		if p == nil {
			continue
		}
		rights := p.Git(r.Host, r.Port, repo)
		if rights == nil {
			return nil
		}
		all = append(all, rights)
	}
	return all
}

// gitRequest is a request of git's that is judged.
type gitRequest struct {
	way     *Way
	request policy.Request
	http    *http.Request
	asked   smart.Request
	rights  gitRights
	repo    *gitRepo
	// refused is the last refusal by a stage of one of the gateway's own requests to the server.
	refused atomic.Pointer[proxy.Refusal]
}

// judgeGit is the stage that judges what is asked of repositories over git.
func (w *Way) judgeGit(r policy.Request, h *http.Request) (leg, error) {
	if h == nil || !w.gitHost(r.Host) {
		return leg{}, nil
	}
	g := &gitRequest{way: w, request: r, http: h}
	g.asked = smart.Recognise(r.Method, r.Path, h.URL.RawQuery, h.URL.RawQuery != "" || h.URL.ForceQuery)
	if g.asked.Kind == smart.Other {
		return leg{}, nil
	}
	g.rights = w.gitRights(r, g.asked.Repo)
	if g.asked.Kind == smart.Files && g.rights == nil && !strings.HasSuffix(g.asked.Repo, ".git") {
		return leg{}, nil // a page that is called like one of git's files
	}
	switch {
	case h.URL.Scheme != "https":
		return leg{}, refuseGit(ruleGit, "git is let through over https")
	case g.asked.Kind == smart.Odd:
		return leg{}, refuseGit(ruleGit, "no client of git asks for this")
	case g.asked.Kind == smart.Files:
		return leg{}, refuseGit(ruleGit, "files of repositories are not given out by name (the dumb protocol)")
	case g.rights == nil:
		return leg{}, refuseGit("default", fmt.Sprintf("the policy's git section has no repository %s%s", r.Host.Authority(r.Port), g.asked.Repo))
	}
	g.repo = w.repos.of(r.Host.Authority(r.Port) + strings.TrimSuffix(g.asked.Repo, ".git"))
	for _, name := range []string{"Range", "If-Range", "If-None-Match", "If-Modified-Since", "If-Match", "If-Unmodified-Since"} {
		delete(h.Header, name) // an answer is whole, or cannot be judged
	}
	h.Header["Accept-Encoding"] = []string{"identity"}
	switch g.asked.Kind {
	case smart.Advertise:
		return g.advertise()
	case smart.UploadPack:
		return g.fetch()
	case smart.ReceivePack:
		return g.push()
	}
	return g.large()
}

func refuseGit(rule, reason string) *proxy.Refusal {
	return &proxy.Refusal{Code: cove.Forbidden, Rule: rule, Reason: reason}
}

// version settles the version of the protocol, so that the server reads what was
// judged.
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

// view returns the sandbox's view of the repository. Errors: a refusal by rate, after which a retry sees more.
func (g *gitRequest) view() (smart.View, error) {
	if g.repo.headOf() == "" {
		g.learnHead(g.http.Context())
		if refused := g.refused.Load(); refused != nil && refused.Code == cove.Overloaded {
			return smart.View{}, refused
		}
	}
	return smart.View{Sees: g.rights.sees, Head: g.repo.headOf(), Found: g.repo.found, Shown: g.repo.show,
		Options: g.rights.all(func(p *git.Policy) bool { return p.Options == git.Allow })}, nil
}

// advertise filters what a server says first.
func (g *gitRequest) advertise() (leg, error) {
	g.version()
	if g.asked.Service == smart.Push && g.rights.all((*git.Policy).ReadOnly) {
		return leg{}, refuseGit(g.rights[0].ID, "this sandbox only reads from this repository")
	}
	return leg{response: func(res *http.Response) error {
		if res.StatusCode != http.StatusOK {
			return nil
		}
		if err := replaceable(res, "application/x-"+string(g.asked.Service)+"-advertisement"); err != nil {
			return err
		}
		v, err := g.view()
		if err != nil {
			return err
		}
		return replaceAnswer(res, smart.Advertisement(res.Body, g.asked.Service, v))
	}}, nil
}

// fetch judges what a client wants, and filters lists of refs.
func (g *gitRequest) fetch() (leg, error) {
	v := g.version()
	body, err := g.body(askedType, smart.MaxAsked)
	if err != nil {
		return leg{}, err
	}
	asked, err := smart.ParseAsked(bytes.NewReader(body), v)
	if err != nil {
		return leg{}, refuseFetch(plainMessage(err))
	}
	if !asked.Refs {
		if err := g.admit(g.http.Context(), asked); err != nil {
			return leg{}, err
		}
		if !g.rights.all(func(p *git.Policy) bool { return p.SeesTags() }) {
			if body, err = smart.WithoutTags(body, v); err != nil {
				return leg{}, err
			}
		}
	}
	carry(g.http, io.NopCloser(bytes.NewReader(body)), int64(len(body)))
	return leg{response: func(res *http.Response) error {
		if res.StatusCode != http.StatusOK {
			return nil
		}
		if err := replaceable(res, objectsType); err != nil || !asked.Refs {
			return err
		}
		v, err := g.view()
		if err != nil {
			return err
		}
		return replaceAnswer(res, smart.Refs(res.Body, v))
	}}, nil
}

// admit admits wants that were shown, or that are in the history of shown refs. Errors: the refusal.
func (g *gitRequest) admit(ctx context.Context, asked smart.Asked) error {
	for _, ref := range asked.Names {
		full := ref
		if !strings.HasPrefix(ref, "refs/") && ref != "HEAD" {
			full = "refs/heads/" + ref
		}
		if !g.rights.sees(full, g.repo.headOf()) {
			return refuseFetch(fmt.Sprintf("there is no ref %.100q", ref))
		}
	}
	missing := g.repo.missing(asked.Wants)
	if len(missing) > 0 { // shown by another gateway, or pushed meanwhile
		if err := g.list(ctx); err != nil {
			return g.unanswered(err)
		}
		missing = g.repo.missing(missing)
	}
	if len(missing) > 0 {
		var err error
		if missing, err = g.unreachable(ctx, missing); err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		return refuseFetch("upload-pack: not our ref " + missing[0])
	}
	return nil
}

// refuseFetch answers as a server does that has not what is wanted: git shows it
// as a remote error.
func refuseFetch(reason string) *proxy.Answer {
	var b bytes.Buffer
	pktline.NewWriter(&b).Text("ERR %s", reason)
	return &proxy.Answer{Status: http.StatusOK, Header: http.Header{"Content-Type": {objectsType}}, Body: b.Bytes(), Rule: ruleGit, Reason: reason}
}

// plainMessage is the message of an error without its hint.
func plainMessage(err error) string {
	return strings.TrimSuffix(err.Error(), " ("+cove.ErrorHint(err)+")")
}

// large judges what is asked about large files (LFS): downloads, where the
// policy has them.
func (g *gitRequest) large() (leg, error) {
	if !g.rights.all(func(p *git.Policy) bool { return p.Downloads }) {
		return leg{}, refuseGit(g.rights[0].ID, "large files (LFS) are not passed on")
	}
	if g.asked.Kind != smart.Batch {
		if g.request.Method == http.MethodGet || g.request.Method == http.MethodHead {
			return leg{}, nil
		}
		return leg{}, refuseGit(ruleGit, "large files (LFS) are downloaded only")
	}
	body, err := g.body("", maxBatch)
	if err != nil {
		return leg{}, err
	}
	operation, err := smart.ParseBatch(body)
	if err != nil || operation != "download" {
		return leg{}, refuseGit(ruleGit, "large files (LFS) are downloaded only: nothing could be judged in an upload")
	}
	carry(g.http, io.NopCloser(bytes.NewReader(body)), int64(len(body)))
	return leg{}, nil
}

// maxBatch is what a question where large files are may have, in bytes.
const maxBatch = 4 << 20

// body reads the body of a request, decoded, which has to be of a type.
func (g *gitRequest) body(kind string, most int64) ([]byte, error) {
	r, err := g.decoded(kind)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	switch {
	case err != nil:
		return nil, cove.Errorf(cove.InvalidArgument, "the body of the request broke off: %w", err)
	case int64(len(data)) > most:
		return nil, cove.Errorf(cove.TooLarge, "the request has more than %d bytes", most)
	}
	return data, nil
}

// decoded is the body of a request as it is judged, and sent on.
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

// carry has a request carry what was judged, instead of its body.
func carry(h *http.Request, body io.ReadCloser, size int64) {
	if h.Body != nil {
		h.Body.Close()
	}
	h.Body, h.ContentLength, h.GetBody, h.Trailer = body, size, nil, nil
	if size == 0 {
		h.Body = http.NoBody
	}
	for _, name := range []string{"Content-Encoding", "Content-Length", "Content-Md5", "Digest", "Expect"} {
		delete(h.Header, name)
	}
}

// replaceable refuses an answer that cannot be judged as what it should be.
func replaceable(res *http.Response, kind string) error {
	if got := res.Header.Get("Content-Type"); got != kind {
		return &proxy.Refusal{Code: cove.Unavailable, Rule: ruleGit, Reason: fmt.Sprintf("the server does not answer as a git server does (smart HTTP): its answer is of type %.60q", got)}
	}
	if coding := res.Header.Get("Content-Encoding"); cmp.Or(coding, "identity") != "identity" {
		return &proxy.Refusal{Code: cove.Unavailable, Rule: ruleGit, Reason: fmt.Sprintf("the server answers in the coding %.30q, which nobody asked for", coding)}
	}
	return nil
}

// replaceAnswer has an answer carry what is left of it.
func replaceAnswer(res *http.Response, body io.Reader) error {
	res.Body = filtered{body, res.Body}
	res.ContentLength = -1
	for _, name := range []string{"Content-Length", "Etag", "Content-Md5", "Digest", "Last-Modified", "Accept-Ranges"} {
		res.Header.Del(name)
	}
	return nil
}

// filtered reads what is left of an answer, and closes all of it.
type filtered struct {
	io.Reader
	io.Closer
}
