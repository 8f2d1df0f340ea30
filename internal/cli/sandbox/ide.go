package sandbox

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// trustIDE warns once, before a program of this machine opens files that a
// sandbox writes. At a terminal the user has to agree.
func trustIDE(sess *session.Session, program string) error {
	if program == "" {
		return nil
	}
	if _, err := exec.LookPath(program); err != nil {
		return cove.Errorf(cove.NotFound, "--ide: there is no program %.80q here", program).
			WithHint("name one that is in PATH, such as code, zed, idea or vim")
	}
	cfg, err := sess.Config()
	if err != nil {
		return err
	}
	told := filepath.Join(cfg.Home, "ide-warning-seen")
	if _, err := os.Stat(told); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	sess.Say.Line("the checkout of a sandbox is written by the programs in it. " +
		"A program that runs what it finds there (tasks, hooks of git, extensions, build files) runs it as you, " +
		"outside the sandbox. Open it in the program's restricted mode, and build in the sandbox.")
	if ui.IsTerminal(sess.In) && ui.IsTerminal(sess.Err) {
		if err := sess.Confirm("go on? [y/N] ", "y", "yes"); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(cfg.Home, 0o700); err != nil {
		return cove.Errorf(cove.StorageFull, "cannot use %s: %w", cfg.Home, err)
	}
	return os.WriteFile(told, nil, 0o600)
}

// openIDE opens a directory with a program, which may take the terminal. Git
// that it runs there has no hooks and no monitor.
func openIDE(sess *session.Session, program, dir string) error {
	c := exec.Command(program, dir)
	c.Stdin, c.Stdout, c.Stderr = sess.In, sess.Out, sess.Err
	c.Env = append(os.Environ(), "GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=core.hooksPath", "GIT_CONFIG_VALUE_0=/dev/null",
		"GIT_CONFIG_KEY_1=core.fsmonitor", "GIT_CONFIG_VALUE_1=false")
	if err := c.Run(); err != nil {
		return cove.Errorf(cove.Unavailable, "%s cannot open %s: %w", program, dir, err)
	}
	return nil
}
