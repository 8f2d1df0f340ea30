//go:build !linux

package session

import (
	"context"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/devcontainer"
)

func Confinement(context.Context, *Session, string, bool) (c devcontainer.Confinement, filter []byte, err error) {
	return c, nil, cove.Errorf(cove.Unsupported, "the filter of system calls is made on Linux alone").
		WithHint("run it where the containers run")
}
