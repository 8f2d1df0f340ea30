package client

import (
	"context"
	"net/http"

	"github.com/cove-sandbox/cove/api"
)

// Owner asks a server what it tells the owner of its machine alone, and changes that.
type Owner struct{ c *Client }

// AsOwner returns the client as that of the machine's owner, whom the server's unix socket knows.
func AsOwner(c *Client) Owner { return Owner{c} }

// Credentials lists the credentials of the server's machine, without their values; check asks the programs that give
// values, too.
func (o Owner) Credentials(ctx context.Context, check bool) (api.CredentialList, error) {
	q := query{}
	if check {
		q.set("check", "true")
	}
	return ask[api.CredentialList](ctx, o.c, http.MethodGet, at("/credentials").with(q), nil)
}

// HandEnvironment hands over variables that credentials are read from. Errors: InvalidArgument for a variable that
// no credential reads.
func (o Owner) HandEnvironment(ctx context.Context, variables map[string]string) (api.CredentialsTaken, error) {
	return ask[api.CredentialsTaken](ctx, o.c, http.MethodPut, at("/credentials/environment"),
		api.CredentialEnvironment{Variables: variables})
}

// SettingDigests returns a digest of each setting of the server.
func (o Owner) SettingDigests(ctx context.Context) (map[string]string, error) {
	s, err := ask[api.SettingDigests](ctx, o.c, http.MethodGet, at("/settings"), nil)
	return s.Digests, err
}
