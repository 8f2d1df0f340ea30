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

// socketFlag names the gateway's socket.
const socketFlag = "socket"

// socketOf is the path of the gateway's socket.
func socketOf(f *pflag.FlagSet, cfg *config.Config) (string, error) {
	path, err := f.GetString(socketFlag)
	if err != nil || path == "" {
		return filepath.Join(cfg.RunDir, gatewaySocket), err
	}
	return filepath.Abs(path)
}

// gatewayClient speaks to the gateway.
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

// ofGateway returns the answer of the gateway.
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

// clientFlags say what a client of the gateway may do.
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

// given reports whether there is any.
func (f *clientFlags) given() bool {
	return f.policy.Given() || len(f.credentials) > 0 || f.models.Given()
}

// registration is g with what the flags say.
func (f *clientFlags) registration(g api.GatewayRegistration) (api.GatewayRegistration, error) {
	var err error
	if g.GatewayPolicy, err = f.policy.Texts(); err != nil {
		return g, err
	}
	g.Credentials = f.credentials
	g.ModelPermission, err = f.models.Permission()
	return g, err
}
