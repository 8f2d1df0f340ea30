package network

import (
	"cmp"
	"context"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

func gatewayCommand(sess *session.Session, d Daemon) *cobra.Command {
	var allowed clientFlags
	var o GatewayOptions
	listen := ""
	c := &cobra.Command{
		Use:   "gateway",
		Short: "Run the gateway for containers that Cove does not start",
		Long: `Run the gateway for programs and containers that Cove does not start. What goes
out through it is judged by a policy, gets credentials, and is recorded, as it
is for Cove's own sandboxes.

With --listen there is a proxy (HTTP, CONNECT, SOCKS5) for one client, with the
policy of this command line; SIGHUP reads its files anew. More clients, each
with a policy and an authority of its own, are registered over a unix socket:
"cove gateway add" for those that use a proxy, and "cove gateway attach" for
containers that know of none and have no other network.

The gateway remembers its clients: after it was killed and started again, they
have the same addresses, policies and authorities. While it is away nothing goes
out.`,
		Example: `  cove gateway --listen 127.0.0.1:3128 --policy policy.yaml
  cove gateway add builder --allow api.example.com --env
  cove gateway attach --pid 4242 --name box --allow api.example.com`,
		Args: ui.UnknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return runGateway(sess, d, cmd, o, listen, &allowed) },
	}
	c = session.OfDaemon(sess, c)
	f := c.Flags()
	allowed.add(f, "the default client")
	f.StringVar(&listen, "listen", "", "`ADDRESS` of the default client's proxy: HOST:PORT of loopback, or unix:/PATH")
	f.StringVar(&o.State, "state", "", "`DIR` of the gateway's state: database, authorities (default: gateway in --home)")
	f.StringVar(&o.Health, "health", "", "report the gateway's health at `HOST:PORT`: GET /health")
	f.BoolVar(&o.BeyondLoopback, "beyond-loopback", false,
		"listen where other machines reach it, too: they go out with the client's policy and credentials")
	c.PersistentFlags().String(socketFlag, "",
		"`PATH` of the unix socket that clients are registered over (default: gateway.sock in --run-dir)")
	c.AddCommand(gatewayAdd(sess), gatewayList(sess), gatewayRemove(sess), gatewayAttach(sess))
	return c
}

func runGateway(sess *session.Session, d Daemon, cmd *cobra.Command, o GatewayOptions, listen string,
	allowed *clientFlags) error {
	if listen == "" && allowed.given() {
		return ui.UsageError(cmd, "the policy has no client: name an address with --listen")
	}
	cfg, err := sess.Config()
	if err != nil {
		return err
	}
	o.State = cmp.Or(o.State, filepath.Join(cfg.Home, "gateway"))
	if o.Socket, err = socketOf(cmd.Flags(), cfg); err != nil {
		return err
	}
	if listen != "" {
		o.Default = func() (api.GatewayRegistration, error) {
			return allowed.registration(api.GatewayRegistration{Listen: listen})
		}
	}
	return d.Gateway(cmd.Context(), sess, o)
}

func gatewayAdd(sess *session.Session) *cobra.Command {
	var f clientFlags
	var g api.GatewayRegistration
	env := false
	c := &cobra.Command{
		Use:   "add NAME",
		Short: "Give a client a way out, or another policy",
		Long: `Give a client a way out of the gateway: a proxy (HTTP, CONNECT, SOCKS5) that is
its alone, with a policy and an authority of its own. The address is printed, or
with --env the whole environment that leads programs there.

A client that is there gets the policy in the place of its own, at once: what is
no longer allowed is refused and cut before anything more is allowed.`,
		Example: `  cove gateway add builder --policy policy.yaml --credential github
  env $(cove gateway add me --allow api.example.com --env) curl https://api.example.com/`,
	}
	f.add(c.Flags(), "the client")
	c.Flags().StringVar(&g.Listen, "listen", "",
		"`ADDRESS` of the client's proxy: HOST:PORT of loopback, or unix:/PATH; without it a free port, which stays")
	c.Flags().BoolVar(&g.Transparent, "transparent", false,
		"without a proxy: the client is attached later (cove gateway attach)")
	c.Flags().StringVar(&g.Dir, "dir", "", "`DIR` where the client sees its files, "+
		"if not where the gateway has them: /etc/cove with --volume FILES:/etc/cove:ro")
	c.Flags().BoolVar(&env, "env", false,
		"print NAME=VALUE lines: the environment that leads programs to the proxy and has them trust it")
	return sess.Showing(c, func(cmd *cobra.Command, args []string) (ui.Result, error) {
		g.Name = args[0]
		wanted, err := f.registration(g)
		if err != nil {
			return ui.Result{}, err
		}
		made, err := ofGateway(sess, cmd, func(c *client.Client, ctx context.Context) (api.GatewayClient, error) {
			return c.RegisterGatewayClient(ctx, wanted)
		})
		r := ui.Result{Value: made, Text: made.Listen + "\n"}
		if env {
			r.Text = envText(made.Env)
		} else if g.Transparent {
			r.Text = made.Files + "\n"
		}
		return r, err
	})
}

func gatewayList(sess *session.Session) *cobra.Command {
	return sess.ShowingList(&cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the gateway's clients",
	}, func(cmd *cobra.Command, _ []string) (ui.Result, error) {
		all, err := ofGateway(sess, cmd, (*client.Client).GatewayClients)
		headings := []string{"NAME", "ADDRESS", "STATE", "FILES"}
		return ui.Listing("clients", all, headings, func(c api.GatewayClient) []string {
			address, state := c.Listen, "open"
			if c.Transparent {
				address = "transparent"
			}
			if !c.Open {
				state = "closed"
			}
			return []string{c.Name, address, cmp.Or(c.Problem, state), c.Files}
		}), err
	})
}

func gatewayRemove(sess *session.Session) *cobra.Command {
	return sess.Showing(&cobra.Command{
		Use:     "remove NAME...",
		Aliases: []string{"rm", "delete"},
		Short:   "Close clients' ways out for good",
		Long:    "Close clients' ways out for good: their connections are cut, and their authorities\nforgotten.",
	}, func(cmd *cobra.Command, args []string) (ui.Result, error) {
		gateway, err := gatewayClient(sess, cmd)
		if err != nil {
			return ui.Result{}, err
		}
		defer gateway.Close()
		for _, name := range args {
			if err := gateway.RemoveGatewayClient(cmd.Context(), name); err != nil {
				return ui.Result{}, err
			}
		}
		return ui.Names("removed", args, strings.Clone), nil
	})
}
