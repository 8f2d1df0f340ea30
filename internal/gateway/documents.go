package gateway

import (
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// Documents returns the layers of a requested policy: each file, then the rest. Errors: InvalidArgument, with the
// place.
func Documents(p api.GatewayPolicy) ([]*policy.Document, error) {
	return policy.Documents(apispec.Policy(p))
}
