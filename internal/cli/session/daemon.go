package session

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/config"
)

// place is the process that carries out a command.
type place int

const (
	byServer  place = iota // the server that was named or answers
	byDaemon               // this one, with a daemon of its own
	byProgram              // the program with the daemon, which takes this one's place
)

// situation holds the facts that decide on the place of a command.
type situation struct {
	named   bool // a server is named
	answers bool // it is, or the server of this machine answers
	differs bool // the server of this machine has other settings than a command that runs something
	own     bool // no server does what is asked: the command serves, or looks after the machine
	linked  bool // this program has the daemon
}

// place decides which process carries out a command. It is pure.
func (s situation) place() place {
	switch {
	case !s.own && (s.named || s.answers && !s.differs):
		return byServer
	case s.linked:
		return byDaemon
	}
	return byProgram
}

// daemonOf returns the daemon of this program. Without one, the program that has it takes the place of this process,
// and the call returns only if that fails.
func daemonOf(sess *Session) (Daemon, error) {
	if err := NeedDaemon(sess); err != nil {
		return nil, err
	}
	return sess.Daemon, nil
}

// NeedDaemon returns in a program with a daemon, or with the error of putting one into this program's place.
func NeedDaemon(sess *Session) error {
	if err := Here(); err != nil {
		return err
	}
	if (situation{own: true, linked: sess.Daemon != nil}).place() == byProgram {
		return handOver(sess.Args)
	}
	return nil
}

// OfDaemon marks a command that a program with a daemon carries out, whether a server answers or not.
func OfDaemon(sess *Session, c *cobra.Command) *cobra.Command {
	run := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := NeedDaemon(sess); err != nil {
			return err
		}
		return run(cmd, args)
	}
	return OnLinux(c)
}

// OnLinux returns a command, which is refused on other systems and not listed there. It takes whatever it takes on
// Linux.
func OnLinux(c *cobra.Command) *cobra.Command {
	refusal := Here()
	if refusal == nil {
		return c
	}
	return &cobra.Command{
		Use: c.Name(), Short: "Only on Linux", Hidden: true, DisableFlagParsing: true, Args: cobra.ArbitraryArgs,
		RunE: func(*cobra.Command, []string) error { return refusal },
	}
}

func embed(ctx context.Context, sess *Session, warm bool) (*Backend, error) {
	d, err := daemonOf(sess)
	if err != nil {
		return nil, err
	}
	return d.Open(ctx, sess, warm)
}

// ProfilesHere returns the profiles that the configuration of this machine describes.
func ProfilesHere(sess *Session) ([]api.Profile, error) {
	d, err := daemonOf(sess)
	if err != nil {
		return nil, err
	}
	return d.Profiles(sess)
}

// ImageNames lists the names of the images in the store of this machine, for completion, which shows no errors.
func ImageNames(ctx context.Context, sess *Session) []string {
	d, err := daemonOf(sess)
	if err != nil {
		return nil
	}
	return d.ImageNames(ctx, sess)
}

// ProviderNames lists the model providers that the configuration of this machine describes, for completion.
func ProviderNames(sess *Session) (all []string) {
	if cfg, err := sess.Config(); err == nil {
		providers, _ := config.Providers(cfg) // completion cannot show an error
		for _, p := range providers {
			all = append(all, p.Name)
		}
	}
	return all
}
