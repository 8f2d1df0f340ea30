package network

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/config"
)

// gatewaySocket is the socket of "cove gateway", below the run directory.
const gatewaySocket = "gateway.sock"

const socketFlag = "socket"

func socketOf(f *pflag.FlagSet, cfg *config.Config) (string, error) {
	path, err := f.GetString(socketFlag)
	if err != nil || path == "" {
		return filepath.Join(cfg.RunDir, gatewaySocket), err
	}
	return filepath.Abs(path)
}

// addSocket adds --socket to a command that a CLIENT of the gateway can be named to.
func addSocket(f *pflag.FlagSet) {
	f.String(socketFlag, "", "`PATH` of the gateway's unix socket, for a CLIENT (default: gateway.sock in --run-dir)")
}

func gatewayClient(sess *session.Session, cmd *cobra.Command) (*client.Client, error) {
	cfg, err := sess.Config()
	if err != nil {
		return nil, err
	}
	path, err := socketOf(cmd.Flags(), cfg)
	if err != nil {
		return nil, err
	}
	if !session.Answers(cmd.Context(), path) {
		return nil, cove.Errorf(cove.Unavailable, "no gateway answers on %s", path).
			WithHint("start one with \"cove gateway\", or name its socket with --socket")
	}
	return client.New(client.Options{Address: "unix:" + path})
}

func ofGateway[T any](sess *session.Session, cmd *cobra.Command, ask session.Ask[T]) (answer T, err error) {
	gateway, err := gatewayClient(sess, cmd)
	if err != nil {
		return answer, err
	}
	defer gateway.Close()
	return ask(gateway, cmd.Context())
}

// envText is an environment as env(1), and docker run --env-file, take it.
func envText(env map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(env)) {
		fmt.Fprintf(&b, "%s=%s\n", name, env[name])
	}
	return b.String()
}

type clientFlags struct {
	policy      flags.Policy
	credentials []string
	models      flags.Models
}

func (f *clientFlags) add(set *pflag.FlagSet, whose string) {
	f.policy.Add(set)
	f.models.Add(set)
	set.StringArrayVar(&f.credentials, "credential", nil, "`NAME` of a credential that "+whose+" may use (repeatable)")
}

func (f *clientFlags) given() bool {
	return f.policy.Given() || len(f.credentials) > 0 || f.models.Given()
}

func (f *clientFlags) registration(g api.GatewayRegistration) (api.GatewayRegistration, error) {
	var err error
	if g.GatewayPolicy, err = f.policy.Texts(); err != nil {
		return g, err
	}
	g.Credentials = f.credentials
	g.ModelPermission, err = f.models.Permission()
	return g, err
}

// theirNetwork holds one action on a network for each kind of its owner.
type theirNetwork struct{ execution, sandbox, gateway func(*client.Client) error }

// aboutNetwork performs the action for an execution, by its id, for a sandbox,
// which one process of Cove manages, or for a client of "cove gateway".
func aboutNetwork(sess *session.Session, cmd *cobra.Command, name string, do theirNetwork) error {
	ctx := cmd.Context()
	_, err := cove.ParseExecutionID(name)
	isExecution := err == nil
	if isExecution || !cmd.Flags().Changed(socketFlag) {
		peers, err := sess.Peers(ctx)
		if err != nil {
			return err
		}
		defer session.CloseAll(peers)
		if isExecution {
			return session.AskRunner(peers, name, do.execution)
		}
		for _, p := range peers {
			err := do.sandbox(p.Client)
			if code := cove.ErrorCode(err); code != cove.NotFound && code != cove.Unavailable { // of a process that is no server
				return err
			}
		}
	}
	gateway, err := gatewayClient(sess, cmd)
	if cove.ErrorCode(err) == cove.Unavailable && !cmd.Flags().Changed(socketFlag) {
		return cove.Errorf(cove.NotFound, "there is no sandbox %.80q", name).
			WithHint("\"cove list\" and \"cove ps\" show what there is; " +
				"for a client of \"cove gateway\" give the gateway's --socket")
	}
	if err != nil {
		return err
	}
	defer gateway.Close()
	return do.gateway(gateway)
}
