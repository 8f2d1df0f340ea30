package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/profile"
)

// profileRoutes serve named configurations.
type profileRoutes struct{ *edge }

// profileErrors are the errors of reading the profiles of the machine's owner.
var profileErrors = []cove.Code{cove.NotFound}

// add adds the routes of named configurations.
func (s profileRoutes) add() {
	route(s, huma.Operation{OperationID: "list-profiles", Method: http.MethodGet, Path: "/profiles",
		Tags:        []string{"profiles"},
		Summary:     "List the profiles",
		Description: "Whole for the machine's owner; without variables, mounts and policies for others.",
	}, nil, s.listProfiles)

	route(s, huma.Operation{OperationID: "get-profile", Method: http.MethodGet, Path: "/profiles/{profile}",
		Tags:        []string{"profiles"},
		Summary:     "Get a profile",
		Description: "Whole for the machine's owner; without variables, mounts and policies for others.",
	}, profileErrors, s.getProfile)
}

// listProfiles is GET /profiles.
func (s profileRoutes) listProfiles(ctx context.Context, _ *struct{}) (*answer[api.ProfileList], error) {
	all, err := s.profiles()
	if err != nil {
		return nil, err
	}
	list := api.ProfileList{Profiles: []api.Profile{}}
	for _, p := range all {
		list.Profiles = append(list.Profiles, shownProfile(p, exchangeOf(ctx).who))
	}
	return &answer[api.ProfileList]{list}, nil
}

type profileInput struct {
	Profile string `path:"profile" maxLength:"64"`
}

// getProfile is GET /profiles/{profile}.
func (s profileRoutes) getProfile(ctx context.Context, in *profileInput) (*answer[api.Profile], error) {
	all, err := s.profiles()
	if err != nil {
		return nil, err
	}
	p, err := profile.Find(all, in.Profile)
	if p.Problem != "" {
		err = nil // it is shown with its problem
	}
	return &answer[api.Profile]{shownProfile(p, exchangeOf(ctx).who)}, err
}

// shownProfile returns a profile without the parts that the caller may not see.
func shownProfile(p api.Profile, who cove.Principal) api.Profile {
	if !who.IsOwner() {
		p.Env, p.Mounts, p.Network, p.Instructions, p.MCPConfig = nil, nil, nil, "", nil
		if p.Problem != "" {
			p.Problem = "it is invalid"
		}
	}
	return p
}
