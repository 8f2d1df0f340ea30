package network

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/containers"
)

func gatewayAttach(sess *session.Session) *cobra.Command {
	var f clientFlags
	var g api.GatewayRegistration
	var pid int
	var chosen containers.Choice
	var engineName string
	var env bool
	c := &cobra.Command{
		Use:   "attach (--container NAME | --label KEY=VALUE | --pid PID)",
		Short: "Lead everything that leaves a container to the gateway",
		Long: `Lead everything that leaves the network namespace of a container to the gateway,
whether or not the programs there know of it. The namespace must have loopback
only, as containers started with "docker run --network none" have. As root it is
entered for that. Where that is not possible, since the engine is on another
machine or this user is not root, a second container leads the network to the
gateway, the sidecar, which the engine starts from an image of cove-guest.

A container of Docker or Podman is found by its name, or by a label, and attached
whenever it runs: also after it has been restarted. With --container this ends
when the container is removed; with --label it attaches each container that has
the label, and stays. A label that the image has does not count, nor does that of a
container of a dev container's file or of Compose: who wrote the file could say it.
For a dev container, "cove devcontainer write" prints a label with a secret value.
The client of a removed container is removed, unless it was there before. --pid
attaches the namespace of any process.

This command stays: the way out is open while it runs and while the container
does. When the gateway has gone, nothing goes out, and when it is back the way
out is opened again.

Programs have to trust the client's authority. Its files are put into a container
as /etc/cove, if they are not there already (--volume FILES:/etc/cove:ro; "cove
gateway add NAME --transparent" prints FILES beforehand), and the environment
that --env prints makes programs look there.`,
		Example: `  docker run --detach --network none --name box debian sleep infinity
  cove gateway attach --container box --policy policy.yaml --env >box.env &
  docker exec --env-file box.env box curl https://api.example.com/

  cove gateway attach --label cove=yes --engine podman --allow api.example.com`,
		Args: ui.Arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ways := slices.DeleteFunc([]string{"container", "label", "pid"},
				func(flag string) bool { return !cmd.Flags().Changed(flag) })
			if len(ways) != 1 {
				return ui.UsageError(cmd, "give one of --container NAME, --label KEY=VALUE and --pid PID")
			}
			switch {
			case ways[0] == "pid" && pid <= 0:
				return ui.UsageError(cmd, "--pid is the process in the container, as this machine numbers it")
			case ways[0] != "pid" && chosen == (containers.Choice{}):
				return ui.UsageError(cmd, "--%s is empty", ways[0])
			case chosen.Label != "" && (g.Name != "" || env):
				return ui.UsageError(cmd, "--name and --env are about one container: give --container")
			case ways[0] == "pid" && engineName != "":
				return ui.UsageError(cmd, "--engine is about containers: give --container or --label")
			}
			g, err := f.registration(g)
			if err != nil {
				return err
			}
			var found containers.Engine
			if pid == 0 {
				if found, err = containers.Find(engineName); err != nil {
					return err
				}
			}
			g.Transparent = true
			ctx, interrupts := ui.CoverSignals(cmd.Context())
			defer interrupts.Stop()
			a := attaching{Session: sess, given: f.given(), env: env}
			if a.gateway, err = gatewayClient(sess, cmd); err != nil {
				return err
			}
			defer a.gateway.Close()
			if pid == 0 {
				return interrupts.Explain(a.containers(ctx, found, chosen, g))
			}
			g.Name = cmp.Or(g.Name, "pid-"+strconv.Itoa(pid))
			if err := a.process(ctx, pid, g, nil); err != nil {
				return interrupts.Explain(err)
			}
			sess.Say.Line("process %d has ended", pid)
			return nil
		},
	}
	f.add(c.Flags(), "the client")
	c.Flags().StringVar(&chosen.Name, "container", "", "`NAME` or id of a container")
	c.Flags().StringVar(&chosen.Label, "label", "", "all containers with the label `KEY=VALUE`, as they come")
	c.Flags().StringVar(&engineName, "engine", "",
		"`ENGINE` of the containers: docker or podman (default: the one that is installed)")
	c.Flags().IntVar(&pid, "pid", 0, "`PID` of a process in the container")
	c.Flags().StringVar(&g.Name, "name", "", "`NAME` of the client (default: that of --container, the container's id, or "+
		"pid-PID); a registered client keeps its authority, and its policy unless flags give another")
	c.Flags().StringVar(&g.Dir, "dir", "",
		"`DIR` where the process sees its files (default: /etc/cove in a container, else where the gateway has them)")
	c.Flags().BoolVar(&env, "env", false, "print NAME=VALUE lines, once the way out is open")
	return c
}
