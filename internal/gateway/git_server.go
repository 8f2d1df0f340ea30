package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
	"github.com/cove-sandbox/cove/internal/git/inspect"
	"github.com/cove-sandbox/cove/internal/git/pktline"
	git "github.com/cove-sandbox/cove/internal/git/policy"
	"github.com/cove-sandbox/cove/internal/git/smart"
)

// ask sends a request to the server in the sandbox's place, as far as its policy permits: through the stages after
// git's, and recorded like the sandbox's own requests. The caller closes the answer, which has the status 200.
func (g *gitRequest) ask(ctx context.Context, method, below, query string, header http.Header,
	body []byte) (*http.Response, error) {
	r := g.request
	r.Layer, r.Method, r.Path = policy.LayerHTTP, method, g.asked.Repo+below
	u := *g.http.URL
	u.Opaque, u.RawPath, u.RawQuery, u.ForceQuery = "", r.Path, query, false
	var err error
	if u.Path, err = url.PathUnescape(r.Path); err != nil {
		return nil, err
	}
	h := (&http.Request{Method: method, URL: &u, Host: g.http.Host, Header: header, Proto: "HTTP/1.1", ProtoMajor: 1,
		ProtoMinor: 1}).WithContext(ctx)
	if body != nil {
		carryQuestion(h, body)
	}
	if own := g.http.Header["Authorization"]; len(own) > 0 { // the sandbox's own, where there is no credential
		header["Authorization"] = own
	}
	header["User-Agent"] = g.http.Header["User-Agent"]
	header["Accept-Encoding"] = []string{"identity"}
	res, err := g.proxy.RoundTrip(h, r, g.judge(r),
		func(r policy.Request, h *http.Request) (proxy.Passage, error) { return enter(g.after, r, h) })
	if err != nil {
		if refused := (*proxy.Refusal)(nil); errors.As(err, &refused) {
			g.refused.Store(refused)
		}
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		res.Body.Close()
		return nil, cove.Errorf(cove.Unavailable, "the git server answers %s", res.Status)
	}
	return res, nil
}

// speaks returns what a server answers first: version 2, or a list of refs, which has been read on return.
func (g *gitRequest) speaks(ctx context.Context, v smart.View) (f smart.Features, err error) {
	res, err := g.ask(ctx, http.MethodGet, "/info/refs", "service="+string(smart.Fetch),
		http.Header{"Git-Protocol": {smart.Version(2).Header()}}, nil)
	if err != nil {
		return f, err
	}
	defer res.Body.Close()
	if err := replaceable(res, "application/x-git-upload-pack-advertisement"); err != nil {
		return f, err
	}
	list := smart.Advertisement(res.Body, smart.Fetch, v)
	if f, err = smart.ParseFeatures(list); err == nil && !f.Two {
		if _, err = io.Copy(io.Discard, list); err == nil && list.Refused() != "" {
			err = smart.Refused(list.Refused())
		}
	}
	g.repo.whole.Store(!slices.Contains(f.Fetch, "filter"))
	return f, err
}

func (g *gitRequest) refs(ctx context.Context, v smart.View, prefixes ...string) error {
	f, err := g.speaks(ctx, v)
	if err != nil || !f.Two {
		return err
	}
	var b bytes.Buffer
	w := pktline.NewWriter(&b)
	w.Text("command=ls-refs")
	if f.SHA256 {
		w.Text("object-format=sha256")
	}
	w.Delim()
	w.Text("peel")
	w.Text("symrefs")
	for _, p := range prefixes {
		w.Text("ref-prefix %s", p)
	}
	w.Flush()
	answer, err := g.upload(ctx, b.Bytes())
	if err != nil {
		return err
	}
	defer answer.Close()
	list := smart.Refs(answer, v)
	if _, err = io.Copy(io.Discard, list); err == nil && list.Refused() != "" {
		err = smart.Refused(list.Refused())
	}
	return err
}

// learnHead finds the branch of HEAD. On an error, branches are well known by their names alone.
func (g *gitRequest) learnHead(ctx context.Context) error {
	return g.refs(ctx, smart.View{Sees: g.rights.sees, Found: g.repo.found}, "HEAD")
}

func (g *gitRequest) list(ctx context.Context) error {
	return g.refs(ctx, smart.View{Sees: g.rights.sees, Head: g.repo.headOf(), Found: g.repo.found, Shown: g.repo.show})
}

// unreachable returns those of wants that are not in the history of the refs that the sandbox sees now.
func (g *gitRequest) unreachable(ctx context.Context, wants []string) ([]string, error) {
	if g.packs == nil {
		return wants, nil
	}
	visible, _, err := g.tips(ctx)
	if err != nil {
		return nil, g.unanswered(err)
	}
	missing, err := g.packs.Unreachable(ctx, g.inspected(), visible, wants, g.rights[0].PackLimit(), g)
	if err != nil {
		if refused := g.refused.Load(); refused != nil {
			return nil, refused
		}
		if spent, is := errors.AsType[*inspect.Spent](err); is {
			return nil, refuseFetch(spent.Err.Error())
		}
		if ctx.Err() == nil {
			g.log.Error("the history of a repository cannot be inspected; a fetch is refused", "sandbox",
				g.sandbox, "error", err)
		}
		return nil, unanswerable("the gateway cannot tell whether the objects may be fetched", err)
	}
	for _, id := range wants {
		if !slices.Contains(missing, id) {
			g.repo.show("", id)
		}
	}
	return missing, nil
}

// unanswered refuses the sandbox's request after the server, or a stage, has refused to answer the gateway's own.
func (g *gitRequest) unanswered(err error) error {
	if refused := g.refused.Load(); refused != nil {
		return refused
	}
	return unanswerable("the server does not say what it has: "+plainMessage(err), err)
}

// tips returns the object ids of the refs that the sandbox sees now: all, and those of well-known branches.
func (g *gitRequest) tips(ctx context.Context) (visible, settled []string, err error) {
	if g.repo.headOf() == "" {
		if g.learnHead(ctx); g.refused.Load() != nil {
			return nil, nil, g.refused.Load()
		}
	}
	head := g.repo.headOf()
	err = g.refs(ctx, smart.View{Sees: g.rights.sees, Head: head, Found: g.repo.found, Shown: func(ref, id string) {
		g.repo.show(ref, id)
		visible = append(visible, id)
		if git.WellKnown(ref, head) {
			settled = append(settled, id)
		}
	}})
	return visible, settled, err
}

func (g *gitRequest) Fetch(ctx context.Context, q inspect.Query) (io.ReadCloser, []string, error) {
	body := smart.FetchRequest(smart.FetchQuery{Wants: q.Wants, Haves: q.Haves, Trees: q.Trees, All: q.All,
		Objects: q.Objects, Whole: g.repo.whole.Load(), SHA256: len(q.Wants[0]) == 64})
	answer, err := g.upload(ctx, body)
	if err != nil {
		return nil, nil, err
	}
	pack, shallow, err := smart.ParseFetched(answer)
	if err != nil {
		answer.Close()
		return nil, nil, err
	}
	return filtered{pack, answer}, shallow, nil
}

func (g *gitRequest) upload(ctx context.Context, body []byte) (answer io.ReadCloser, err error) {
	res, err := g.ask(ctx, http.MethodPost, "/git-upload-pack", "", http.Header{
		"Git-Protocol": {smart.Version(2).Header()}, "Content-Type": {askedType}, "Accept": {objectsType}}, body)
	if err != nil {
		return nil, err
	}
	if err := replaceable(res, objectsType); err != nil {
		res.Body.Close()
		return nil, err
	}
	return res.Body, nil
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
