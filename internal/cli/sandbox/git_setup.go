package sandbox

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// errNoGitDirectory: git has not said whose helper this is.
var errNoGitDirectory = errors.New("GIT_DIR is not set")

// gitRemoteCommand is git's remote helper for cove::SANDBOX.
func gitRemoteCommand(sess *session.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "git-remote NAME [SANDBOX]",
		Short: "Let git fetch from cove::SANDBOX",
		Long: `Let git fetch from cove::SANDBOX, as the remote helper git-remote-cove: git runs
it, and "cove setup git" puts it where git looks.`,
		Hidden: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return ui.UsageError(cmd, "git calls it with the name of a remote and a SANDBOX")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if sess.Getenv("GIT_DIR") == "" {
				return cove.Errorf(cove.InvalidArgument, "%w", errNoGitDirectory).WithHint("git runs this: git fetch cove::SANDBOX")
			}
			name := strings.TrimPrefix(strings.TrimPrefix(args[len(args)-1], "cove::"), "//")
			return sess.WithServer(cmd, func(ctx context.Context, c *client.Client) error {
				s, err := flags.Target{Name: name}.Find(ctx, c)
				if err != nil {
					return err
				}
				return serveGit(ctx, sess, func() (api.ImportedWork, error) { return c.ImportWork(ctx, s.ID) })
			})
		},
	}
}

func setupCommand(sess *session.Session) *cobra.Command {
	return ui.Group(&cobra.Command{Use: "setup", Short: "Make other programs know of Cove"}, setupGit(sess))
}

func setupGit(sess *session.Session) *cobra.Command {
	dir := ""
	c := &cobra.Command{
		Use:   "git",
		Short: "Let git fetch from sandboxes: git fetch cove::SANDBOX",
		Long: `Put git-remote-cove, another name of this program, where git finds it: beside this
program, or in --dir, which should be in PATH. Then git fetches from sandboxes:

  git fetch cove::SANDBOX          # what is checked out there
  git fetch cove::SANDBOX refs/cove/work   # with what is not committed`,
		Example: "  cove setup git\n  cove setup git --dir ~/.local/bin",
		Args:    ui.Exactly(),
		RunE: func(*cobra.Command, []string) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			if dir == "" {
				dir = filepath.Dir(self)
			}
			link := filepath.Join(dir, gitHelper)
			if to, err := os.Readlink(link); err == nil && to == self {
				return sess.Print(link + "\n")
			}
			if err := os.Symlink(self, link); err != nil {
				return cove.Errorf(cove.InvalidArgument, "cannot make %s: %w", link, errors.Unwrap(err)).WithHint("choose a directory in PATH with --dir, or remove what is there")
			}
			if found, err := exec.LookPath(gitHelper); err != nil || !sameFile(found, link) {
				sess.Say.Line("%s is not in PATH yet: git does not find it", dir)
			}
			return sess.Print(link + "\n")
		},
	}
	c.Flags().StringVar(&dir, "dir", "", "`DIR` to put it in")
	return c
}

func sameFile(a, b string) bool {
	ia, err := os.Stat(a)
	if err != nil {
		return false
	}
	ib, err := os.Stat(b)
	return err == nil && os.SameFile(ia, ib)
}
