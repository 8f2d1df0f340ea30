package sandbox

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/report"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// gitHelper is the name under which git runs this program for cove::SANDBOX.
const gitHelper = "git-remote-cove"

// HelperArgs are the arguments of this program when git runs it as its remote
// helper; ok is false when it runs under another name.
func HelperArgs(name string, args []string) (all []string, ok bool) {
	if name[strings.LastIndexByte(name, '/')+1:] != gitHelper {
		return nil, false
	}
	return append([]string{"git-remote"}, args...), true
}

// uncommitted is the ref that git sees of work that is not committed. No branch of a sandbox has its name.
const uncommitted = "refs/cove/work"

// serveGit speaks git's protocol of remote helpers (gitremote-helpers) on the standard streams. take takes over what
// the sandbox has; the objects then come from the host's own repository, in which all of them have been checked.
func serveGit(ctx context.Context, sess *session.Session, take func() (api.ImportedWork, error)) error {
	in := bufio.NewReader(sess.In)
	var work *api.ImportedWork
	for {
		line, err := in.ReadString('\n')
		if errors.Is(err, io.EOF) && line == "" {
			return nil
		}
		if err != nil {
			return err
		}
		line = strings.TrimSuffix(line, "\n")
		word, _, _ := strings.Cut(line, " ")
		switch word {
		case "":
			return nil
		case "capabilities":
			err = sess.Print("fetch\noption\n\n")
		case "option":
			err = sess.Print("unsupported\n")
		case "list":
			if strings.HasSuffix(line, "for-push") {
				return cove.Errorf(cove.Forbidden, "nothing is pushed into a sandbox").WithHint("change it inside")
			}
			var w api.ImportedWork
			if w, err = take(); err == nil {
				work = &w
				err = sess.Print(listing(w))
			}
		case "fetch":
			if work == nil {
				return cove.Errorf(cove.InvalidArgument, "git asks for objects before it asks for refs")
			}
			if err = fetchBatch(ctx, in, line, *work, sess.Err); err == nil {
				err = sess.Print("\n")
			}
		default:
			return cove.Errorf(cove.InvalidArgument, "git asks for %.80q, which is not known here", line)
		}
		if err != nil {
			return err
		}
	}
}

// visible is the name that git sees of a ref that was taken over, or nothing.
func visible(name string) string {
	if name == "work" {
		return uncommitted
	}
	if strings.HasPrefix(name, "heads/") {
		return "refs/" + name
	}
	return ""
}

// listing answers "list". HEAD is the sandbox's own branch, if that is what is checked out.
func listing(w api.ImportedWork) string {
	var b strings.Builder
	for _, r := range w.Refs {
		if name := visible(r.Name); name != "" {
			fmt.Fprintf(&b, "%s %s\n", r.ID, name)
		}
	}
	if head := headOf(w); head != "" {
		own := api.WorkRef{Name: "heads/" + w.Branch, ID: head}
		if slices.Contains(w.Refs, own) {
			fmt.Fprintf(&b, "@refs/%s HEAD\n", own.Name)
		} else {
			fmt.Fprintf(&b, "%s HEAD\n", head)
		}
	}
	b.WriteString("\n")
	return b.String()
}

// fetchBatch reads "fetch ID NAME" lines to the empty one, and brings the objects into the caller's repository.
func fetchBatch(ctx context.Context, in *bufio.Reader, line string, w api.ImportedWork, progress io.Writer) error {
	var refs []string
	for line != "" {
		words := strings.Fields(line)
		if len(words) != 3 || words[0] != "fetch" {
			return cove.Errorf(cove.InvalidArgument, "git asks for %.80q among what it fetches", line)
		}
		i := slices.IndexFunc(w.Refs, func(r api.WorkRef) bool {
			return r.ID == words[1] && (visible(r.Name) == words[2] || r.Name == words[2])
		})
		if i < 0 {
			return cove.Errorf(cove.NotFound, "the sandbox has no %.80q any more", words[2])
		}
		refs = append(refs, "refs/sandbox/"+w.Refs[i].Name)
		next, err := in.ReadString('\n')
		if err != nil {
			return cove.Errorf(cove.InvalidArgument, "git stopped in the midst of what it asks for: %w", err)
		}
		line = strings.TrimSuffix(next, "\n")
	}
	if w.Directory == "" {
		return cove.Errorf(cove.Forbidden, "only the owner of the sandbox's machine fetches with git").
			WithHint("use \"cove diff\" instead")
	}
	args := append([]string{"-c", "fetch.fsckObjects=true", "fetch-pack", "--quiet", "--no-progress", w.Directory},
		refs...)
	c := exec.CommandContext(ctx, "git", args...)
	c.Stderr = progress // its output, names of refs, is not needed
	if err := c.Run(); err != nil {
		return cove.Errorf(cove.Unavailable, "git cannot fetch from %s: %w", w.Directory, err)
	}
	return nil
}

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
				return cove.Errorf(cove.InvalidArgument, "GIT_DIR is not set").WithHint("git runs this: git fetch cove::SANDBOX")
			}
			name := strings.TrimPrefix(strings.TrimPrefix(args[len(args)-1], "cove::"), "//")
			return sess.WithServer(cmd, func(ctx context.Context, c *client.Client) error {
				s, err := flags.Target{Name: name}.Find(ctx, c)
				if err != nil {
					return err
				}
				if sess.Far() {
					return cove.Errorf(cove.Unsupported, "git cannot fetch from the server %s: the objects are on its machine",
						sess.ServerAddress()).WithHint("bring the work back with %q", sess.Command("apply", s.Name))
				}
				return serveGit(ctx, sess, func() (api.ImportedWork, error) {
					w, err := c.ImportWork(ctx, s.ID)
					if all, unread := c.WorkChanges(ctx, s.ID, nil, false); err == nil && unread == nil {
						sess.Say.Lines(report.Deciding(all.Changes)...)
					}
					return w, err
				})
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
		RunE: func(*cobra.Command, []string) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			dir = cmp.Or(dir, filepath.Dir(self))
			link := filepath.Join(dir, gitHelper)
			if to, err := os.Readlink(link); err == nil && to == self {
				return sess.Print(link + "\n")
			}
			if err := os.Symlink(self, link); err != nil {
				return cove.Errorf(cove.InvalidArgument, "cannot make %s: %w", link, errors.Unwrap(err)).
					WithHint("choose a directory in PATH with --dir, or remove what is there")
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
