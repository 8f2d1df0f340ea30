package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/repos"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// repositoryRoutes serve the store of repositories.
type repositoryRoutes struct{ *edge }

// repositoryErrors are the errors of routes on repositories in the store.
var repositoryErrors = append([]cove.Code{cove.NotFound, cove.Conflict}, storeErrors...)

// add adds the routes of the store of repositories. They are for
// the machine's owner only: a caller must not see what others have fetched.
func (s repositoryRoutes) add() {
	route(s, huma.Operation{OperationID: "list-repositories", Method: http.MethodGet, Path: "/repositories",
		Tags:    []string{"repositories"},
		Summary: "List the repositories in the store",
	}, storeErrors, s.listRepositories)

	route(s, huma.Operation{OperationID: "fetch-repository", Method: http.MethodPost, Path: "/repositories",
		Tags:    []string{"repositories"},
		Summary: "Put a repository into the store, or bring it up to date",
		Description: "Server-sent events: progress carries a Progress; fetched a " +
			"StoredRepository; error an Error; fetched or error is the last. Lines that begin with a colon are heartbeats.",
		Responses: s.stepResponses(api.EventFetched, typeOf[api.StoredRepository]()),
	}, repositoryErrors, s.fetchRepository)

	route(s, huma.Operation{OperationID: "remove-repository", Method: http.MethodDelete, Path: "/repositories",
		Tags: []string{"repositories"}, DefaultStatus: http.StatusNoContent,
		Summary:     "Remove a repository from the store",
		Description: "One that sandboxes borrow from stays.",
	}, repositoryErrors, s.removeRepository)

	route(s, huma.Operation{OperationID: "collect-repository", Method: http.MethodPost, Path: "/repositories/collect",
		Tags: []string{"repositories"}, DefaultStatus: http.StatusNoContent,
		Summary:     "Pack a repository of the store anew",
		Description: "While sandboxes borrow from it, every object stays.",
	}, repositoryErrors, s.collectRepository)
}

// addUploads adds the route by which clients of other machines send folders.
func (s repositoryRoutes) addUploads() {
	route(s, huma.Operation{OperationID: "upload-folder", Method: http.MethodPost, Path: "/uploads",
		Tags: []string{"repositories"}, DefaultStatus: http.StatusCreated,
		Summary: "Send a folder of another machine",
		Description: "The body is a pack of git's, which has a commit of the folder. One sandbox of the caller's is made " +
			"of it, whose request has repository.upload: objects are checked then. Without one the upload is removed " +
			"after a quarter of an hour; what breaks off leaves nothing. Uploads that wait or come count towards the disk " +
			"quota of the key (disk_mb): what is beyond it is refused before it is stored.",
		RequestBody: &huma.RequestBody{Required: true,
			Content: map[string]*huma.MediaType{"application/octet-stream": {Schema: &huma.Schema{Type: huma.TypeString,
				Format: "binary"}}}},
	}, append([]cove.Code{cove.TooLarge, cove.Conflict}, storeErrors...), s.upload)
}

// upload is POST /uploads.
func (s repositoryRoutes) upload(ctx context.Context, _ *struct{}) (*answer[api.Upload], error) {
	ex := exchangeOf(ctx)
	body := &pacedBody{ReadCloser: ex.r.Body, control: http.NewResponseController(ex.w), pause: s.ReadTimeout}
	id, size, err := s.Repositories.Receive(ctx, ex.who, repos.Sending{Length: ex.r.ContentLength,
		Fits: func(sent, more int64) error { return s.Sandboxes.FitsUploads(ctx, ex.who, sent, more) }}, body)
	if err != nil {
		ex.w.Header().Set("Connection", "close") // the rest is not read
		return nil, err
	}
	return &answer[api.Upload]{api.Upload{ID: string(id), Size: size}}, nil
}

func storedRepository(m repos.Mirror) api.StoredRepository {
	r := api.StoredRepository{Source: m.Address, Name: m.Key, Size: m.Size, Partial: m.Partial, FetchedAt: m.FetchedAt,
		UsedAt:    m.UsedAt.UTC().Truncate(time.Second),
		Sandboxes: []string{}, Kept: m.Kept}
	for _, id := range m.Borrowers {
		r.Sandboxes = append(r.Sandboxes, string(id))
	}
	return r
}

// listRepositories is GET /repositories.
func (s repositoryRoutes) listRepositories(ctx context.Context, _ *struct{}) (*answer[api.StoredRepositories], error) {
	all, err := s.Repositories.Mirrors(ctx, exchangeOf(ctx).who)
	if err != nil {
		return nil, err
	}
	l := api.StoredRepositories{Repositories: []api.StoredRepository{}}
	for _, m := range all {
		l.Repositories = append(l.Repositories, storedRepository(m))
	}
	return &answer[api.StoredRepositories]{l}, nil
}

type repositoryInput struct{ Body api.RepositoryName }

type fetchInput struct{ Body api.FetchRepositoryRequest }

// fetchRepository is POST /repositories.
func (s repositoryRoutes) fetchRepository(ctx context.Context, in *fetchInput) (*huma.StreamResponse, error) {
	ex := exchangeOf(ctx)
	return &huma.StreamResponse{Body: func(huma.Context) {
		s.stepByStep(ctx, ex, api.EventFetched, func(ctx context.Context, progress func(workspace.Step)) (any, error) {
			m, err := s.Repositories.FetchMirror(ctx, ex.who, in.Body.Source, in.Body.Partial, progress)
			return storedRepository(m), err
		})
	}}, nil
}

type removeInput struct {
	Source string `query:"source" required:"true" maxLength:"2048" doc:"OWNER/REPO, an HTTPS address, a directory, or its name in the store"`
}

// removeRepository is DELETE /repositories.
func (s repositoryRoutes) removeRepository(ctx context.Context, in *removeInput) (*struct{}, error) {
	return nil, s.Repositories.RemoveMirror(ctx, exchangeOf(ctx).who, in.Source)
}

// collectRepository is POST /repositories/collect.
func (s repositoryRoutes) collectRepository(ctx context.Context, in *repositoryInput) (*struct{}, error) {
	return nil, s.Repositories.CollectMirror(ctx, exchangeOf(ctx).who, in.Body.Source)
}
