package session

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/config"
	"github.com/cove-sandbox/cove/internal/version"
)

const (
	serverProgram = "cove-server"
	// title is the name of all programs in lists of processes.
	title = "cove"
	// callerVariable tells the server's program the version of the command whose place it takes.
	callerVariable = "COVE_CALLER_VERSION"
)

// daemonProgram returns the path of the program with the daemon: it lies beside this one, or is it.
func daemonProgram() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", noProgram(err)
	}
	return filepath.Join(filepath.Dir(self), serverProgram), nil
}

// noProgram returns the error of a server's program that cannot be started.
func noProgram(err error) error {
	return cove.Errorf(cove.Unavailable, "the server's program cannot be started: %w", err).
		WithHint("install cove-server beside cove; \"make build\" builds both")
}

// handOver puts the program with the daemon in the place of this process, with the same arguments, environment and open
// files. Its id stays, so that its parent, its terminal and signals find it as before. It returns only if that fails.
func handOver(args []string, more ...string) error {
	program, err := daemonProgram()
	if err != nil {
		return err
	}
	err = syscall.Exec(program, append([]string{title}, args...), append(callerEnvironment(), more...))
	return noProgram(&fs.PathError{Op: "exec", Path: program, Err: err})
}

func callerEnvironment() []string {
	all := append(os.Environ(), callerVariable+"="+version.Version)
	if os.Getenv(collectVariable) == "" {
		all = append(all, collectVariable+"="+collectLate)
	}
	return all
}

// HandOverAtOnce puts the program with the daemon in the place of this process where that is sure to come, before this
// one has read its command line: else both would, one after the other. Where it fails, the command line is read, and
// the command hands over as always, or says why it cannot.
func HandOverAtOnce(args []string) {
	if Here() == nil && needsDaemon(args, os.Getenv, exists) {
		_ = handOver(args, ahead(args)...)
	}
}

// ahead starts the fork server with which a program is run, beside the program with the daemon, and returns what to
// tell that one of it.
func ahead(args []string) []string {
	if args[0] != "run" {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	return forkServer(filepath.Join(filepath.Dir(self), "cove-guest"))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// needsDaemon reports whether a command line is for the program with the daemon, as far as its words tell: it looks
// after the machine, or runs something where no server is named and none has made its socket. That program carries out
// every other command, too, only not as soon. It is pure, apart from exists.
func needsDaemon(args []string, getenv func(string) string, exists func(path string) bool) bool {
	said := func(flags ...string) bool {
		return slices.ContainsFunc(args, func(arg string) bool {
			name, _, _ := strings.Cut(arg, "=")
			return slices.Contains(flags, name)
		})
	}
	if len(args) == 0 || getenv(callerVariable) != "" || said("--help", "-h") {
		return false
	}
	switch args[0] {
	case "serve", "doctor", "image":
		return true
	case "run":
		if cmp.Or(getenv("COVE_SERVER"), getenv("COVE_CONFIG"), getenv("CONFIG_PATH")) != "" ||
			said("--server", "--config", "--run-dir", "--set") {
			return false
		}
		places := config.Defaults(getenv, os.Geteuid())
		places.RunDir = cmp.Or(getenv("COVE_RUN_DIR"), places.RunDir)
		return !exists(places.Socket())
	}
	return false
}

// CheckCaller refuses to take the place of a command of another version, or of any command without a daemon. It takes
// the version out of the environment.
func CheckCaller(sess *Session) error {
	caller, called := os.LookupEnv(callerVariable)
	if !called {
		return nil
	}
	return errors.Join(os.Unsetenv(callerVariable), fits(caller, version.Version, sess.Daemon != nil))
}

// fits returns the error of a program that cannot take the place of a command. It is pure.
func fits(command, program string, linked bool) error {
	switch {
	case !linked:
		return cove.Errorf(cove.Unavailable, "cove-server beside cove is cove itself").
			WithHint("install cove-server beside cove; \"make build\" builds both")
	case command == program:
		return nil
	}
	return cove.Errorf(cove.Unavailable, "cove is of version %s, and cove-server beside it of version %s", command,
		program).WithHint("install both from one release; \"make build\" builds both")
}
