package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/egress/credential"
)

// ownerRoutes serve what the machine's owner alone may know and change of a server: its credentials and its settings.
type ownerRoutes struct{ *edge }

// add adds the routes of the machine's owner.
func (s ownerRoutes) add() {
	route(s, huma.Operation{OperationID: "list-credentials", Method: http.MethodGet, Path: "/credentials",
		Tags: []string{"credentials"}, Summary: "List the credentials of the machine, without their values",
	}, []cove.Code{cove.Forbidden}, s.listCredentials)

	route(s, huma.Operation{OperationID: "hand-credential-environment", Method: http.MethodPut,
		Path: "/credentials/environment", Tags: []string{"credentials"},
		Summary: "Hand over the variables that credentials are read from",
		Description: "A server that a command has started in the background uses them from " +
			"now on; another one says which differ from its own.",
	}, []cove.Code{cove.Forbidden}, s.handEnvironment)

	route(s, huma.Operation{OperationID: "list-setting-digests", Method: http.MethodGet, Path: "/settings",
		Tags: []string{"server"}, Summary: "List digests of the server's settings",
		Description: "A command compares them with its own settings.",
	}, []cove.Code{cove.Forbidden}, s.listSettings)
}

type listCredentialsInput struct {
	Check bool `query:"check" doc:"Ask the programs that give values, too"`
}

// listCredentials is GET /credentials.
func (s ownerRoutes) listCredentials(ctx context.Context, in *listCredentialsInput) (*answer[api.CredentialList],
	error) {
	all, err := s.Credentials.All(ctx, in.Check)
	if err != nil {
		return nil, err
	}
	list := api.CredentialList{Credentials: make([]api.Credential, len(all))}
	for i, c := range all {
		list.Credentials[i] = shownCredential(c)
	}
	list.Reads, err = s.Credentials.Reads()
	return &answer[api.CredentialList]{list}, err
}

func shownCredential(c credential.State) api.Credential {
	shown := api.Credential{Name: c.Name, Sources: append([]string{}, c.Sources...),
		Variables: append([]string{}, c.Variables...), State: "untried", From: c.From}
	switch {
	case c.Problem != nil:
		shown.State, shown.Problem, shown.Hint = "missing", cove.ErrorMessage(c.Problem), cove.ErrorHint(c.Problem)
	case c.Tried:
		shown.State = "ready"
	}
	return shown
}

type environmentInput struct{ Body api.CredentialEnvironment }

// handEnvironment is PUT /credentials/environment.
func (s ownerRoutes) handEnvironment(ctx context.Context, in *environmentInput) (*answer[api.CredentialsTaken], error) {
	t, err := s.Credentials.Take(in.Body.Variables)
	return &answer[api.CredentialsTaken]{api.CredentialsTaken{Changed: append([]string{}, t.Changed...),
		Kept: append([]string{}, t.Kept...)}}, err
}

// listSettings is GET /settings.
func (s ownerRoutes) listSettings(ctx context.Context, _ *struct{}) (*answer[api.SettingDigests], error) {
	return &answer[api.SettingDigests]{api.SettingDigests{Digests: s.Settings()}}, nil
}
