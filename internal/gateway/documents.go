package gateway

import (
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// Documents are the layers of a policy as the API asks for it. Errors:
// InvalidArgument, with the place.
func Documents(p api.GatewayPolicy) ([]*policy.Document, error) {
	return policy.Documents(apispec.Policy(p))
}
