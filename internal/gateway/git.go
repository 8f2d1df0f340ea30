package gateway

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/git/pktline"
	git "github.com/cove-sandbox/cove/internal/git/policy"
	"github.com/cove-sandbox/cove/internal/git/smart"
)

func (s *gitStage) enter(r policy.Request, h *http.Request) (leg, error) {
	if h == nil {
		return leg{}, nil
	}
	if !s.gitHost(r.Host) {
		return unjudgedPush(r, h), nil
	}
	g := &gitRequest{gitStage: s, request: r, http: h}
	g.asked = smart.Recognise(r.Method, r.Path, h.URL.RawQuery, h.URL.RawQuery != "" || h.URL.ForceQuery)
	if g.asked.Kind == smart.Other {
		return leg{}, nil
	}
	g.rights = s.rightsTo(r, g.asked.Repo)
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
		return leg{}, refuseGit("default", fmt.Sprintf("the policy's git section has no repository %s%s",
			r.Host.Authority(r.Port), g.asked.Repo))
	}
	g.repo = s.repos.of(r.Host.Authority(r.Port) + strings.TrimSuffix(g.asked.Repo, ".git"))
	for _, name := range []string{"Range", "If-Range", "If-None-Match", "If-Modified-Since", "If-Match",
		"If-Unmodified-Since"} {
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

// unjudgedPush passes a push on that no policy of git judges, as those of the host's own git. A server's packet ERR is
// put where a client with side-bands reads it: git itself takes it for a malformed band, and does not show it.
func unjudgedPush(r policy.Request, h *http.Request) leg {
	asked := smart.Recognise(r.Method, r.Path, h.URL.RawQuery, h.URL.RawQuery != "" || h.URL.ForceQuery)
	if asked.Kind != smart.ReceivePack || h.Body == nil || h.Header.Get("Content-Encoding") != "" {
		return leg{}
	}
	body := bufio.NewReaderSize(h.Body, pktline.MaxLine)
	form := smart.RefusalTo(body)
	h.Body, h.GetBody = filtered{body, h.Body}, nil
	return leg{response: func(res *http.Response) error {
		if res.StatusCode == http.StatusOK && replaceable(res, smart.PushResult) == nil {
			replaceAnswer(res, smart.NewResult(res.Body, form))
		}
		return nil
	}}
}

// large judges requests about large files (LFS): the policy may permit downloads.
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
	carryQuestion(g.http, body)
	return leg{}, nil
}

const maxBatch = 4 << 20 // bounds a request for the addresses of large files, in bytes

func (g *gitRequest) advertise() (leg, error) {
	g.version()
	if g.asked.Service == smart.Push && g.rights.all((*git.Policy).ReadOnly) {
		return leg{}, refuseGit(g.rights[0].ID, git.ReadingOnly())
	}
	return leg{response: func(res *http.Response) error {
		form := func(r io.Reader, v smart.View) *smart.List { return smart.Advertisement(r, g.asked.Service, v) }
		return g.filter(res, "application/x-"+string(g.asked.Service)+"-advertisement", form)
	}, problem: g.saidProblem}, nil
}

// fetch judges the objects that a client wants, and filters lists of refs.
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
	carryQuestion(g.http, body)
	return leg{response: func(res *http.Response) error {
		if asked.Refs || res.StatusCode != http.StatusOK {
			return g.filter(res, objectsType, smart.Refs)
		}
		if err := replaceable(res, objectsType); err != nil {
			return err
		}
		result := smart.NewResult(res.Body, nil)
		g.answer = result
		replaceAnswer(res, result)
		return nil
	}, problem: g.saidProblem}, nil
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

// filter replaces an answer of a type by the form of it that shows the sandbox's view.
func (g *gitRequest) filter(res *http.Response, kind string, form func(io.Reader, smart.View) *smart.List) error {
	if res.StatusCode != http.StatusOK {
		return nil
	}
	if err := replaceable(res, kind); err != nil {
		return err
	}
	v, err := g.view()
	if err != nil {
		return err
	}
	list := form(res.Body, v)
	g.answer = list
	replaceAnswer(res, list)
	return nil
}
