package gateway

import (
	"sync/atomic"

	"github.com/cove-sandbox/cove"
)

// identity names the sandbox of a route.
type identity struct {
	sandbox cove.SandboxID
	owner   cove.Principal
	asker   cove.Principal         // see Spec
	object  string                 // see Spec
	name    atomic.Pointer[string] // see Rename
}
