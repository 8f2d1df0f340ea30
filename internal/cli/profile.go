package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/atomicfile"
	"github.com/cove-sandbox/cove/internal/profile"
)

func (a *app) profileCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "profile",
		Short: "See named configurations, and choose one",
		Long: `See named configurations of sandboxes and agents, and choose the one that is used
where no --profile is given. They are in profiles.yaml in --home (or where the
setting profiles says), which is read at each use. What a command line says itself
goes before its profile.`,
	}, a.profileList(), a.profileShow(), a.profileUse())
}

// addProfile adds --profile to a command that makes sandboxes.
func (a *app) addProfile(c *cobra.Command, to *string) {
	c.Flags().StringVar(to, "profile", "", "`NAME` of a profile (\"cove profile list\"); default is none")
	c.RegisterFlagCompletionFunc("profile", a.completeProfile)
}

// chosenFile keeps the name of the profile that is used where none is given.
func (a *app) chosenFile() (string, error) {
	cfg, err := a.loadConfig()
	if err != nil {
		return "", err
	}
	return filepath.Join(cfg.Home, "profile"), nil
}

// chosenProfile is the one that "cove profile use" has chosen; empty is none.
// A server that is named knows nothing of what was chosen here.
func (a *app) chosenProfile() (string, error) {
	if a.serverAddress() != "" {
		return "", nil
	}
	file, err := a.chosenFile()
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", cove.Errorf(cove.InvalidArgument, "cannot read which profile is chosen: %w", cause(err))
	}
	return strings.TrimSpace(string(data)), nil
}

// resolveProfile is the profile of a command line: the one that it names, or the
// chosen one.
func (a *app) resolveProfile(named string) (string, error) {
	switch named {
	case profile.Default:
		return "", nil
	case "":
		return a.chosenProfile()
	}
	return named, nil
}

// profiles asks whoever has them.
func (a *app) profiles(ctx context.Context) (all []api.Profile, err error) {
	b, err := a.connect(ctx, false)
	if err != nil {
		return nil, err
	}
	defer func() {
		if cerr := b.close(); err == nil {
			err = cerr
		}
	}()
	return b.client.Profiles(ctx)
}

func (a *app) profileList() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the profiles; the chosen one has a star",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := a.profiles(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(api.ProfileList{Profiles: all})
			}
			chosen, err := a.chosenProfile()
			if err != nil {
				return err
			}
			if len(all) == 0 {
				file := "profiles.yaml of the server's home"
				if cfg, err := a.loadConfig(); err == nil && a.serverAddress() == "" {
					file = cfg.ProfilesFile()
				}
				a.say.line("there are no profiles: write them to %s (docs/profiles.md)", file)
				return nil
			}
			var rows [][]string
			for _, p := range all {
				name := p.Name
				if name == chosen {
					name += " *"
				}
				rows = append(rows, []string{name, orDash(p.Agent), orDash(strings.Trim(p.Provider+" "+p.Model, " ")), profileNetworkText(p), p.Description})
			}
			return a.print(table([]string{"PROFILE", "AGENT", "MODELS", "NETWORK", ""}, rows))
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
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

func (a *app) profileShow() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:               "show [NAME]",
		Short:             "Print a profile; without NAME the chosen one",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeProfile,
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := a.profiles(cmd.Context())
			if err != nil {
				return err
			}
			name := strings.Join(args, "")
			if name == "" {
				if name, err = a.chosenProfile(); err != nil {
					return err
				}
			}
			if name == "" {
				return usageError(cmd, "NAME is missing, and no profile is chosen")
			}
			p, err := profile.Find(all, name)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(p)
			}
			text, err := profile.Text(p)
			if err != nil {
				return err
			}
			return a.print(text)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

func (a *app) profileUse() *cobra.Command {
	return &cobra.Command{
		Use:   "use NAME",
		Short: "Choose the profile that is used where no --profile is given",
		Long: `Choose the profile that is used where no --profile is given: by "cove run", "cove
new" and agents on this machine. "cove profile use default" chooses none.`,
		Args:              exactly("NAME"),
		ValidArgsFunction: a.completeProfile,
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.serverAddress() != "" {
				return cove.Errorf(cove.InvalidArgument, "what is chosen is for this machine, and --server names another").WithHint("give --profile there")
			}
			file, err := a.chosenFile()
			if err != nil {
				return err
			}
			name := args[0]
			if name == profile.Default {
				if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return cove.Errorf(cove.StorageFull, "cannot forget which profile is chosen: %w", cause(err))
				}
				a.say.line("no profile is used where none is given")
				return nil
			}
			all, err := a.profiles(cmd.Context())
			if err != nil {
				return err
			}
			if _, err := profile.Find(all, name); err != nil {
				return err
			}
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				return cove.Errorf(cove.StorageFull, "cannot keep which profile is chosen: %w", cause(err))
			}
			if err := atomicfile.Write(file, fmt.Appendln(nil, name), 0o600); err != nil {
				return cove.Errorf(cove.StorageFull, "cannot keep which profile is chosen: %w", cause(err))
			}
			a.say.line("the profile %s is used where none is given", name)
			return nil
		},
	}
}

func (a *app) completeProfile(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := []string{profile.Default}
	all, _ := a.profiles(cmd.Context()) // whoever completes cannot be told
	for _, p := range all {
		names = append(names, p.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
