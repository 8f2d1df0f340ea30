package interact

import (
	"context"
	"strings"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// CreateSandbox asks for a sandbox and shows its steps. A signal takes back what was made.
func CreateSandbox(ctx context.Context, sess *session.Session, req api.SandboxRequest) (api.Sandbox, error) {
	ctx, interrupts := ui.CoverSignals(ctx, sess.Out, sess.Err)
	defer interrupts.Stop()
	b, err := sess.Server(ctx)
	if err != nil {
		return api.Sandbox{}, interrupts.Explain(err)
	}
	defer b.Close()
	shown := sess.NewSteps()
	s, err := b.Client.CreateSandbox(ctx, req, shown.Take)
	if err != nil {
		shown.Fail()
		if interrupts.First() != 0 {
			sess.Say.Line("what was made of the sandbox is taken back")
		}
		return s, interrupts.Explain(err)
	}
	shown.Finish()
	SayExposed(sess, s.Exposes)
	return s, nil
}

// SayExposed warns that real tokens are in a sandbox, even with --quiet.
func SayExposed(sess *session.Session, variables []string) {
	if len(variables) > 0 {
		sess.Say.Line("the real token of %s is in the sandbox, because its profile says so: "+
			"its programs can read it, and send it wherever its network leads", strings.Join(variables, " and "))
	}
}
