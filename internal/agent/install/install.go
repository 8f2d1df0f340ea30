package install

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/agent"
	"github.com/cove-sandbox/cove/internal/atomicfile"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/filelock"
	"github.com/cove-sandbox/cove/internal/workspace"
)

const (
	newPrefix  = ".new-"      // of directories in which something is being installed
	oldPrefix  = ".old-"      // of those that are being removed
	lockName   = ".lock"      // held during a change
	lockSuffix = ".lock.json" // of npm's lockfile of a version, which outlives its directory
	place      = "/layer"     // of what is being installed, inside
	packages   = "node_modules"
	shown      = time.Second // how often it is told how far npm is
)

// installLimits bound npm at work, and checkLimits a program that prints its version. What npm writes is on the host,
// beside the disk limit.
var (
	installLimits = cove.Limits{Memory: 3 << 30, CPUs: 2, PIDs: 512, Disk: 1 << 30, Timeout: 30 * time.Minute}
	checkLimits   = cove.Limits{Memory: 2 << 30, CPUs: 2, PIDs: 256, Disk: 1 << 30, Timeout: time.Minute}
)

// installScript makes a layer in the current directory: arguments are package, version, file name and pattern of the
// program.
//
//go:embed install.sh
var installScript string

// Install installs a version of an agent, the pinned one if empty, and has runs use it. Where it is there already
// nothing is fetched. Errors: NotFound, InvalidArgument, RuntimeMissing without npm, Unavailable without its registry,
// StorageFull, Corrupt, Unsupported, Canceled.
func (s *Store) Install(ctx context.Context, name, version string, progress func(workspace.Step)) (agent.Layer, error) {
	a, err := s.Agent(name)
	if err != nil {
		return agent.Layer{}, err
	}
	if a.Package.Npm == "" {
		if version != "" {
			return agent.Layer{}, cove.Errorf(cove.Unsupported,
				"%s is not installed from a registry, and has no versions to choose from", a.Title).
				WithHint("leave the version out")
		}
		return s.Layer(a)
	}
	version = cmp.Or(version, a.Package.Version)
	if err := agent.CheckVersion(version); err != nil {
		return agent.Layer{}, err
	}
	unlock, err := s.lock(ctx, a, progress)
	if err != nil {
		return agent.Layer{}, err
	}
	defer unlock()
	l := s.layer(a, version)
	if !exists(l.Source) {
		if err := s.make(ctx, a, l, progress); err != nil {
			return agent.Layer{}, err
		}
	}
	if err := atomicfile.Write(filepath.Join(s.dirOf(a), currentName), []byte(version+"\n"), 0o644); err != nil {
		return agent.Layer{}, onDisk(err, "which version of "+a.Title+" is in use cannot be noted")
	}
	return l, nil
}

// lock keeps other processes from changing the installs of an agent, and removes what a process that died during a
// change has left.
func (s *Store) lock(ctx context.Context, a agent.Agent, progress func(workspace.Step)) (unlock func(), err error) {
	dir := s.dirOf(a)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, onDisk(err, "the directory of "+a.Title+" cannot be made")
	}
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, onDisk(err, "the directory of "+a.Title+" cannot be used")
	}
	if err = filelock.Try(f, filelock.Exclusive); errors.Is(err, filelock.ErrHeld) {
		progress(workspace.Step{Text: "waiting for another who installs " + a.Title})
		err = filelock.Wait(ctx, f, filelock.Exclusive)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		f.Close()
		return nil, cove.Errorf(cove.Canceled, "nothing was installed: %w", context.Cause(ctx))
	case err != nil:
		f.Close()
		return nil, cove.Errorf(cove.Internal, "lock %s: %w", dir, err)
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), newPrefix) || strings.HasPrefix(e.Name(), oldPrefix) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	if err != nil {
		f.Close()
		return nil, onDisk(err, "what an earlier installation of "+a.Title+" has left cannot be removed")
	}
	return func() { f.Close() }, nil
}

// make makes a layer. It is there as a whole, and after a crash of the machine too, or not at all.
func (s *Store) make(ctx context.Context, a agent.Agent, l agent.Layer, progress func(workspace.Step)) (err error) {
	dir := s.dirOf(a)
	registry, err := s.o.Registry(ctx)
	if err != nil {
		if cove.ErrorCode(err) == cove.NotFound {
			return cove.Errorf(cove.RuntimeMissing, "%s is installed by npm, which is not on this machine", a.Title).
				WithHint("install Node.js with npm, and say again: cove agents install %s", a.Name)
		}
		return err
	}
	made, err := os.MkdirTemp(dir, newPrefix)
	if err != nil {
		return onDisk(err, "a directory for "+a.Title+" cannot be made")
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(made))
		}
	}()
	lockfile := filepath.Join(dir, l.Version+lockSuffix)
	if err := prepare(made, registry, lockfile); err != nil {
		return onDisk(err, "the directory of "+a.Title+" cannot be prepared")
	}
	trial := agent.Layer{Name: a.Name + "/" + filepath.Base(made), Version: l.Version, Source: made}
	if err := s.npm(ctx, a, l.Version, trial.Name, made, progress); err != nil {
		return err
	}
	progress(workspace.Step{Text: "trying " + a.Title + " " + l.Version})
	if _, err := s.Try(ctx, a, trial); err != nil {
		return err
	}
	return s.settle(made, l.Source, lockfile)
}

// prepare puts into a directory what npm needs to know. The user of npm inside may write there: with some engines that
// is another user than the owner.
func prepare(made string, registry map[string]string, lockfile string) error {
	var config strings.Builder
	for _, key := range slices.Sorted(maps.Keys(registry)) {
		fmt.Fprintf(&config, "%s=%s\n", key, registry[key])
	}
	if err := os.WriteFile(filepath.Join(made, ".npmrc"), []byte(config.String()), 0o644); err != nil {
		return err
	}
	known, err := os.ReadFile(lockfile)
	if err == nil {
		err = os.WriteFile(filepath.Join(made, "known-lock.json"), known, 0o644)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Chmod(made, 0o777)
}

// npm lets npm install a package into the directory of a layer, in a sandbox that reaches npm's registry and nothing
// else.
func (s *Store) npm(
	ctx context.Context, a agent.Agent, version, layer, made string, progress func(workspace.Step),
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	step := workspace.Step{Text: "fetching " + a.Package.Npm + " " + version}
	if version == a.Package.Version {
		step.Total = a.Package.Megabytes * 1e6
	}
	progress(step)
	told := make(chan struct{})
	go func() {
		defer close(told)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(shown):
				// Beside its cache, npm unpacks packages while they arrive.
				if size := sizeOf(filepath.Join(made, packages)); size > 1<<20 {
					step.Bytes = size
					progress(step)
				}
			}
		}
	}()
	r, err := s.run(ctx, layer, engine.Attachment{Target: place}, Job{
		Script: installScript, Args: []string{a.Package.Npm, version, a.Program, a.Package.Program}, Limits: installLimits,
		Network: &cove.Network{Enabled: true, Policies: []cove.PolicyText{{Source: "installation of " + a.Name,
			Text: "presets: [npm]\n"}}},
	})
	cancel()
	<-told
	if err != nil {
		return err
	}
	if err := r.problem(a, version); err != nil {
		return err
	}
	step.Bytes = sizeOf(made)
	progress(step)
	return nil
}

// run runs a job in a sandbox that is shown a layer.
func (s *Store) run(ctx context.Context, layer string, as engine.Attachment, j Job) (Result, error) {
	place, err := s.Place(layer)
	if err != nil {
		return Result{}, err
	}
	if as.Place, err = place.Open(); err != nil {
		return Result{}, err
	}
	defer as.Place.Close()
	j.Attachments = []engine.Attachment{as}
	return s.o.Run(ctx, j)
}

// Exit codes of the scripts that are their own.
const (
	exitNoNpm     = 90
	exitNoProgram = 91
	exitNeeds     = 92
)

// problem is why an installation has failed; nil if it has not.
func (r Result) problem(a agent.Agent, version string) error {
	what := a.Package.Npm + " " + version
	has := func(signs ...string) bool {
		return slices.ContainsFunc(signs, func(sign string) bool { return strings.Contains(r.Stderr, sign) })
	}
	switch {
	case r.Killed:
		return cove.Errorf(cove.Canceled, "nothing was installed: a user ended it")
	case r.Limit == cove.LimitTimeout:
		return cove.Errorf(cove.Unavailable, "%s was not there in time", what).
			WithHint("is the registry slow to answer? say it again")
	case r.ExitCode == 0 && r.Limit == "":
		return nil
	case has("ENOSPC", "no space left", "EDQUOT"):
		return cove.Errorf(cove.StorageFull, "there is no space for %s", what).
			WithHint("make some below the home of Cove, or set another with COVE_HOME")
	case r.Limit != "":
		return cove.Errorf(cove.LimitReached, "the installation of %s was ended by its limit %s", what, r.Limit).
			WithHint("is it the right package?")
	case r.ExitCode == exitNoNpm:
		return cove.Errorf(cove.RuntimeMissing, "%s is installed by npm, which is not below /usr of this machine", a.Title).
			WithHint("install Node.js with npm there, and say again: cove agents install %s", a.Name)
	case r.ExitCode == exitNoProgram:
		return cove.Errorf(cove.Corrupt, "%s has no program %s", what, a.Program).
			WithHint("correct program or package.program of the agent, or choose another version")
	case has("E404", "ETARGET", "No matching version"):
		return cove.Errorf(cove.NotFound, "npm's registry has no %s", what).
			WithHint("look what there is: npm view %s versions", a.Package.Npm)
	case has("EINTEGRITY"):
		return cove.Errorf(cove.Corrupt, "what npm's registry has as %s is not what it was when it was first installed",
			what).
			WithHint("do not use it before you know why; then remove %s%s of the agent", version, lockSuffix)
	case has("E401", "E403", "ENEEDAUTH"):
		return cove.Errorf(cove.Forbidden, "npm's registry does not give %s without a login: %s",
			what, tail(r.Stderr)).
			WithHint("use a registry that needs none for it")
	case has("ENOTFOUND", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "EAI_AGAIN", "ENETUNREACH", "EHOSTUNREACH",
		"ERR_SOCKET", "E5", "E429", "network"):
		return cove.Errorf(cove.Unavailable, "npm's registry cannot be reached: %s", tail(r.Stderr)).
			WithHint("is this machine online? what is installed already works without")
	}
	return cove.Errorf(cove.Unavailable, "npm cannot install %s: %s", what, tail(r.Stderr)).
		WithHint("see whether npm can, outside: npm view %s@%s", a.Package.Npm, version)
}

// tail is the end of what npm says that means something.
func tail(stderr string) string {
	var lines []string
	for line := range strings.Lines(stderr) {
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "npm error"))
		if line != "" && !strings.HasPrefix(line, "npm warn") && !strings.Contains(line, "complete log") {
			lines = append(lines, line)
		}
	}
	if len(lines) > 4 {
		lines = lines[:4]
	}
	if len(lines) == 0 {
		return "it says nothing"
	}
	return strings.ToValidUTF8(strings.Join(lines, "; "), "?")
}

// tryScript runs a program: arguments are what comes first in PATH, the names of programs that it needs, and the
// command.
const tryScript = `PATH=$1:$PATH
for program in $2; do
    command -v "$program" >/dev/null || { echo "$program"; exit 92; }
done
shift 2
exec "$@"
`

// Try has the program of a layer say its version, in a sandbox. Errors: RuntimeMissing, Corrupt when it is of another
// one, or why the sandbox could not be made.
func (s *Store) Try(ctx context.Context, a agent.Agent, l agent.Layer) (said string, err error) {
	o, err := a.Outfit(l, agent.Choice{})
	if err != nil {
		return "", err
	}
	if len(a.Version) == 0 {
		return "it has no way to say so", nil
	}
	job := Job{Script: tryScript, Args: append([]string{o.Path, strings.Join(a.Needs, " ")}, a.Version...),
		Limits: checkLimits}
	var r Result
	if len(o.Layers) == 0 { // it is in the image
		r, err = s.o.Run(ctx, job)
	} else {
		r, err = s.run(ctx, l.Name, engine.Attachment{Target: o.Layers[0].Target, ReadOnly: true}, job)
	}
	if err != nil {
		return "", err
	}
	said, _, _ = strings.Cut(strings.ToValidUTF8(strings.TrimSpace(r.Stdout), "?"), "\n")
	switch {
	case r.Killed:
		return "", cove.Errorf(cove.Canceled, "the trial of %s was canceled", a.Title)
	case r.ExitCode == exitNeeds:
		return "", cove.Errorf(cove.RuntimeMissing, "%s needs %.80s, which is not below /usr of this machine", a.Title, said).
			WithHint("install it there")
	case r.ExitCode != 0 || r.Limit != "":
		return "", cove.Errorf(cove.RuntimeMissing, "%s does not run here: %s ended with exit code %d: %s",
			a.Title, strings.Join(a.Version, " "), r.ExitCode, tail(r.Stderr)).
			WithHint("see whether it needs something that this machine's /usr has not, or choose another version")
	case a.Builtin && l.Version != "" && !strings.Contains(r.Stdout, l.Version):
		return "", cove.Errorf(cove.Corrupt, "%s says that it is %.80q, and not %s", a.Title, said, l.Version).
			WithHint("remove it, and install it again")
	}
	return said, nil
}

// settle makes what was made durable, and then what it is to be.
func (s *Store) settle(made, target, lockfile string) error {
	lock, err := readRegular(made, "package-lock.json")
	if err == nil && !json.Valid(lock) {
		err = errors.New("npm's lockfile is no JSON")
	}
	if err != nil {
		return cove.Errorf(cove.Corrupt, "npm's lockfile cannot be read: %w", err)
	}
	for _, step := range []func() error{
		func() error { return os.Chmod(made, 0o755) },
		func() error { return atomicfile.SyncAll(made) },
		func() error { return atomicfile.Write(lockfile, lock, 0o644) },
		func() error { return os.Rename(made, target) },
		func() error { return atomicfile.SyncDir(filepath.Dir(target)) },
	} {
		if err := step(); err != nil {
			return onDisk(err, "what was installed cannot be kept")
		}
	}
	return nil
}

const maxLockfile = 16 << 20 // bytes

// readRegular reads a file of a directory that a sandbox has written in.
func readRegular(dir, name string) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	info, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxLockfile {
		return nil, errors.New("it is not a regular file, or too large")
	}
	return root.ReadFile(name)
}

// Size returns the bytes that a layer takes on disk.
func Size(l agent.Layer) int64 {
	if l.Source == "" {
		return 0
	}
	return sizeOf(l.Source)
}

// sizeOf returns the bytes that the files of a directory take; links are not followed.
func sizeOf(dir string) (size int64) {
	seen := map[uint64]bool{}
	filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Nlink > 1 {
			if seen[st.Ino] {
				return nil
			}
			seen[st.Ino] = true
		}
		size += info.Size()
		return nil
	})
	return size
}

// Remove removes versions of an agent that no sandbox has: the one that is named, or all but the one that runs use.
// inUse says who has a layer; the names of the removed are returned. Errors: NotFound, Conflict, StorageFull.
func (s *Store) Remove(
	ctx context.Context, name, version string, inUse func(layer string) []string,
) (removed []string, err error) {
	a, err := s.Agent(name)
	if err != nil {
		return nil, err
	}
	unlock, err := s.lock(ctx, a, func(workspace.Step) {})
	if err != nil {
		return nil, err
	}
	defer unlock()
	all, err := s.Versions(a)
	if err != nil {
		return nil, err
	}
	current, _ := s.Layer(a) // not installed: none of them is
	wanted := slices.DeleteFunc(slices.Clone(all), func(v string) bool {
		return version == "" && v == current.Version || version != "" && version != v
	})
	if version != "" && len(wanted) == 0 {
		return nil, cove.Errorf(cove.NotFound, "%s %.80s is not installed", a.Title, version).
			WithHint("there are %s", strings.Join(all, ", "))
	}
	for _, v := range wanted {
		l := s.layer(a, v)
		if holders := inUse(l.Name); len(holders) > 0 {
			if version == "" {
				continue
			}
			return removed, cove.Errorf(cove.Conflict, "%s %s is in use by %s", a.Title, v, strings.Join(holders, ", ")).
				WithHint("destroy them first: cove destroy %s", holders[0])
		}
		if v == current.Version {
			if err := os.Remove(filepath.Join(s.dirOf(a), currentName)); err != nil {
				return removed, onDisk(err, a.Title+" cannot be removed")
			}
		}
		gone := filepath.Join(s.dirOf(a), oldPrefix+v)
		if err := errors.Join(os.Rename(l.Source, gone), os.RemoveAll(gone)); err != nil {
			return removed, onDisk(err, a.Title+" "+v+" cannot be removed")
		}
		removed = append(removed, v)
	}
	return removed, nil
}

// onDisk is an error of the host's file system.
func onDisk(err error, what string) error {
	e := cove.Errorf(cove.StorageFull, "%s: %w", what, err)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return e.WithHint("make space below the home of Cove, or set another with COVE_HOME")
	}
	return e.WithHint("see to the permissions of the home of Cove, or set another with COVE_HOME")
}
