package network

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/daemon"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// compile makes a policy of the flags; there must be some.
func compile(sess *session.Session, cmd *cobra.Command, f flags.Policy) (*policy.Policy, error) {
	layers, err := f.Documents()
	if err != nil {
		return nil, err
	}
	if len(layers) == 0 {
		return nil, ui.UsageError(cmd, "there is no policy: name one with --policy FILE, or say --network, --allow or --deny")
	}
	m, err := machine(cmd.Context(), sess)
	if err != nil {
		return nil, err
	}
	return policy.Compile(m, layers...)
}

// machine is what policies have to know of this one, as it is configured.
func machine(ctx context.Context, sess *session.Session) (policy.Machine, error) {
	cfg, err := sess.Config()
	if err != nil {
		return policy.Machine{}, err
	}
	return daemon.Machine(ctx, cfg.Gateway)
}
