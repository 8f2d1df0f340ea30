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
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/config"
)

// gatewaySocket is where a gateway of its own is spoken to, below the run
// directory.
const gatewaySocket = "gateway.sock"

const socketFlag = "socket"

// socketOf is the path of the gateway's socket.
func socketOf(flags *pflag.FlagSet, cfg *config.Config) (string, error) {
	path, err := flags.GetString(socketFlag)
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
		return nil, cove.Errorf(cove.Unavailable, "no gateway answers on %s", path).WithHint("start one with \"cove gateway\", or name its socket with --socket")
	}
	return client.New(client.Options{Address: "unix:" + path})
}

// printEnv prints an environment as env(1), and docker run --env-file, take it.
func printEnv(sess *session.Session, env map[string]string) error {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(env)) {
		fmt.Fprintf(&b, "%s=%s\n", name, env[name])
	}
	return sess.Print(b.String())
}
