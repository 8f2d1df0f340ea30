package sandbox

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/profile"
)

func profileCommand(sess *session.Session) *cobra.Command {
	return ui.Group(&cobra.Command{
		Use:   "profile",
		Short: "See named configurations, and choose one",
		Long: `See named configurations of sandboxes and agents, and choose the one that is used
where no --profile is given. They are in profiles.yaml in --home (or where the
setting profiles says), which is read at each use. What a command line says itself
goes before its profile.`,
	}, profileList(sess), profileShow(sess), profileUse(sess))
}

func profileList(sess *session.Session) *cobra.Command {
	return sess.ShowingList(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the profiles; the chosen one has a star",
	}, func(cmd *cobra.Command, _ []string) (ui.Result, error) {
		all, err := sess.Profiles(cmd.Context())
		if err != nil {
			return ui.Result{}, err
		}
		chosen, err := sess.ChosenProfile()
		headings := []string{"PROFILE", "AGENT", "MODELS", "NETWORK", ""}
		r := ui.Listing("profiles", all, headings, func(p api.Profile) []string {
			name := p.Name
			if name == chosen {
				name += " *"
			}
			if p.Problem != "" {
				return []string{name, "-", "-", "-", "invalid: cove profile show " + p.Name}
			}
			models := strings.Trim(p.Provider+" "+p.Model, " ")
			return []string{name, cmp.Or(p.Agent, "-"), cmp.Or(models, "-"), profileNetworkText(p), p.Description}
		})
		if len(all) == 0 {
			file := "profiles.yaml of the server's home"
			if cfg, err := sess.Config(); err == nil && sess.ServerAddress() == "" {
				file = cfg.ProfilesFile()
			}
			note := "there are no profiles: write them to " + file + " (docs/profiles.md)"
			r = ui.Result{Value: r.Value, Notes: []string{note}}
		}
		return r, err
	})
}

func profileNetworkText(p api.Profile) string {
	switch {
	case p.Mode == profile.ModeNone:
		return "the machine's"
	case p.Network == nil:
		return "-"
	case p.Network.Mode == "":
		return string(cove.NetworkLimited)
	}
	return p.Network.Mode
}

func profileShow(sess *session.Session) *cobra.Command {
	return sess.Showing(&cobra.Command{
		Use:               "show [NAME]",
		Short:             "Print a profile; without NAME the chosen one",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: sess.CompleteProfile(),
	}, func(cmd *cobra.Command, args []string) (ui.Result, error) {
		all, err := sess.Profiles(cmd.Context())
		if err != nil {
			return ui.Result{}, err
		}
		name := strings.Join(args, "")
		if name == "" {
			if name, err = sess.ChosenProfile(); err != nil {
				return ui.Result{}, err
			}
		}
		if name == "" {
			return ui.Result{}, ui.UsageError(cmd, "NAME is missing, and no profile is chosen")
		}
		p, err := profile.Find(all, name)
		if err != nil {
			return ui.Result{}, err
		}
		text, err := profile.Text(p)
		return ui.Result{Value: p, Text: text}, err
	})
}

func profileUse(sess *session.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "use NAME",
		Short: "Choose the profile that is used where no --profile is given",
		Long: `Choose the profile that is used where no --profile is given: by "cove run", "cove
new" and agents on this machine. "cove profile use default" chooses none.`,
		ValidArgsFunction: sess.CompleteProfile(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if sess.ServerAddress() != "" {
				return cove.Errorf(cove.InvalidArgument, "the chosen profile is this machine's, and --server names another server").
					WithHint("give --profile there")
			}
			file, err := sess.ChosenProfileFile()
			if err != nil {
				return err
			}
			name := args[0]
			if name == profile.Default {
				if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return cove.Errorf(cove.StorageFull, "cannot forget which profile is chosen: %w", ui.Cause(err))
				}
				sess.Say.Line("no profile is used where none is given")
				return nil
			}
			all, err := sess.Profiles(cmd.Context())
			if err != nil {
				return err
			}
			if _, err := profile.Find(all, name); err != nil {
				return err
			}
			if err := session.Keep(file, []byte(name+"\n")); err != nil {
				return cove.Errorf(cove.StorageFull, "cannot keep which profile is chosen: %w", ui.Cause(err))
			}
			sess.Say.Line("the profile %s is used where none is given", name)
			return nil
		},
	}
}
