package gateway

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/cove-sandbox/cove/internal/egress/policy"
	git "github.com/cove-sandbox/cove/internal/git/policy"
	"github.com/cove-sandbox/cove/internal/git/smart"
)

// enter is the stage that judges git requests to repositories.
func (s *gitStage) enter(r policy.Request, h *http.Request) (leg, error) {
	if h == nil || !s.gitHost(r.Host) {
		return leg{}, nil
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
	carry(g.http, io.NopCloser(bytes.NewReader(body)), int64(len(body)))
	return leg{}, nil
}

// maxBatch bounds a request for the addresses of large files, in bytes.
const maxBatch = 4 << 20
