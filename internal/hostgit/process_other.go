//go:build !linux

package hostgit

import (
	"context"
	"os"
	"os/exec"
)

const install = "install it: https://git-scm.com/downloads"

// command returns git, without limits. Its process ends with the context.
func (l Limits) command(ctx context.Context, program string, args []string) (*exec.Cmd, error) {
	return exec.CommandContext(ctx, program, args...), nil
}

// system returns the variables of this system that git needs: no program starts on Windows without them.
func system() (env []string) {
	for _, name := range []string{"SystemRoot", "TEMP", "TMP"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}
