// Package devcontainers equips sandboxes by the devcontainer.json of a directory: it asks the user for the content,
// has its image built, lays a request over it, and runs its commands in the sandbox.
package devcontainers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/interact"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/compose"
	"github.com/cove-sandbox/cove/internal/devcontainer"
	"github.com/cove-sandbox/cove/internal/profile"
)

// Options are the flags about the dev container of a directory.
type Options struct {
	Use  string // of --devcontainer: empty, defaultDev, or the name of one of several
	Skip bool
	// Quiet leaves out what is not asked for: no question, and no line about a dev container that is not used.
	Quiet bool
	env   []string // names of variables of this shell
}

// defaultDev is --devcontainer without a name.
const defaultDev = "default"

// Add adds the flags.
func (o *Options) Add(f *pflag.FlagSet) {
	f.StringVar(&o.Use, "devcontainer", "",
		"use the repository's dev container, of several the one that is called `NAME`: --devcontainer=NAME")
	f.Lookup("devcontainer").NoOptDefVal = defaultDev
	f.BoolVar(&o.Skip, "no-devcontainer", false, "leave the repository's dev container alone")
	f.StringArrayVar(&o.env, "devcontainer-env", nil,
		"let the dev container read the variable `NAME` of this shell (repeatable)")
}

func (o *Options) name() string {
	if o.Use == defaultDev {
		return ""
	}
	return o.Use
}

// Found is the dev container of a directory.
type Found struct {
	*devcontainer.Effective
	Dir    string // top of the checkout
	Files  devcontainer.Files
	Digest string // of its content
}

// Explain finds and judges the dev container of a checkout, for a sandbox of which nothing else is said. Where the user
// has agreed to it by a flag or a command, features of registries are fetched.
func (o *Options) Explain(ctx context.Context, sess *session.Session, dir string) (*Found, error) {
	c, err := o.context(ctx, sess, dir)
	if err != nil {
		return nil, err
	}
	return o.find(ctx, sess, dir, c)
}

// find reads the dev container of a checkout, and fetches its features of registries where the user has agreed to it by
// a flag or a command. Those on which one depends are known only then.
func (o *Options) find(ctx context.Context, sess *session.Session, dir string, c devcontainer.Context) (*Found, error) {
	for {
		found, err := o.read(dir, c)
		if err != nil || len(found.Missing) == 0 || o.Use == "" {
			return found, err
		}
		for _, ref := range found.Missing {
			if err := fetch(ctx, sess, ref); err != nil {
				return nil, err
			}
		}
	}
}

// context returns the values that a dev container is judged against, for a sandbox of which nothing else is said.
func (o *Options) context(ctx context.Context, sess *session.Session, dir string) (devcontainer.Context, error) {
	c := devcontainer.Context{Local: dir, LocalEnv: map[string]string{}, Origins: map[string]string{},
		Merge:   func(r compose.Request) (compose.Merged, error) { return session.MergeCompose(ctx, sess, r) },
		Fetched: func(ref string) (devcontainer.Files, bool) { return fetched(sess, ref) },
		Machine: cove.Limits{CPUs: float64(runtime.NumCPU())}}
	for _, name := range o.env {
		c.LocalEnv[name] = sess.Getenv(name)
	}
	cfg, err := sess.Config()
	if err != nil {
		return c, err
	}
	l := cfg.Sandbox.Lasting.Limits
	c.Limits = apispec.Limits(api.Limits{MemoryMB: l.MemoryMB, CPUs: l.CPUs, PIDs: l.PIDs, DiskMB: l.DiskMB})
	for key, settings := range map[string][]string{
		"memory": {"sandbox.lasting.limits.memory_mb"}, "cpus": {"sandbox.lasting.limits.cpus"},
		"pids": {"sandbox.lasting.limits.pids_limit"}, "disk": {"sandbox.lasting.limits.disk_mb"},
		"image": {"sandbox.lasting.image", "sandbox.image"},
	} {
		c.Origins[key] = devcontainer.FromDefault
		for _, name := range settings {
			if cfg.Origin(name) != "default" {
				c.Origins[key] = devcontainer.FromUser
			}
		}
	}
	return c, nil
}

// over narrows the context to what a request and its profile say.
func over(ctx context.Context, sess *session.Session, c *devcontainer.Context, req api.SandboxRequest) error {
	lay := func(l *api.Limits, from string) {
		if l == nil {
			return
		}
		own := apispec.Limits(*l)
		c.Limits = own.Over(c.Limits)
		for key, said := range map[string]bool{"memory": own.Memory != 0, "cpus": own.CPUs != 0, "pids": own.PIDs != 0,
			"disk": own.Disk != 0} {
			if said {
				c.Origins[key] = from
			}
		}
	}
	if req.Profile != "" {
		all, err := sess.Profiles(ctx)
		if err != nil {
			return err
		}
		p, err := profile.Find(all, req.Profile)
		if err != nil {
			return err
		}
		lay(p.Limits, "the profile "+req.Profile)
		if p.Image != "" {
			c.Origins["image"] = "the profile " + req.Profile
		}
	}
	lay(req.Limits, "the command line")
	if req.Network != nil {
		c.Allowed = req.Network.Allow
	}
	return nil
}

// read finds and judges the dev container of a checkout.
func (o *Options) read(dir string, c devcontainer.Context) (*Found, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "cannot open %s: %w", dir, ui.Cause(err))
	}
	defer root.Close()
	f, err := devcontainer.Find(root.FS(), o.name())
	if err != nil {
		return nil, err
	}
	found, err := judge(root.FS(), f, c)
	if cove.ErrorCode(err) == cove.NotFound { // it is there, and refers to what is not
		err = cove.Errorf(cove.InvalidArgument, "%s: %w", f.Path, err)
	}
	return found, err
}

func judge(checkout fs.FS, f devcontainer.File, c devcontainer.Context) (*Found, error) {
	c.Checkout = checkout
	e, err := devcontainer.Evaluate(f, c)
	if err != nil {
		return nil, err
	}
	files, err := devcontainer.Referred(checkout, e.Refers)
	if err != nil {
		return nil, err
	}
	maps.Copy(files, e.Read)
	if e.Err() == nil {
		more, err := devcontainer.AddFeatures(checkout, e, c)
		if err != nil {
			return nil, err
		}
		maps.Copy(files, more)
	}
	return &Found{Effective: e, Dir: c.Local, Files: files, Digest: devcontainer.Digest(f, files)}, nil
}

// Text shows the values of a dev container, and what of it is not taken.
func (e *Found) Text() string {
	var rows, left [][]string
	for _, v := range e.Values {
		rows = append(rows, []string{v.Key, v.Value, v.From})
	}
	for _, l := range slices.Concat(e.Unsupported, e.LeftOut) {
		left = append(left, []string{l.Key, l.Why, fmt.Sprintf("%s:%d", l.In(e.Effective), l.Line)})
	}
	for _, host := range slices.Concat(e.Network.Asked, e.Network.PassThrough) {
		left = append(left, []string{"network " + host, "a file of a repository opens nothing; --allow " + host + " does",
			e.File})
	}
	text := ui.Table([]string{"VALUE", "IS", "FROM"}, rows)
	if len(left) > 0 {
		text += "\n" + ui.Table([]string{"LEFT OUT", "WHY", "IN"}, left)
	}
	return text
}

// Bring applies the dev container of the request's directory, if the user agrees to it; nil is none. One that cannot be
// used is an error only where it is asked for.
func (o *Options) Bring(ctx context.Context, sess *session.Session, req *api.SandboxRequest) (*Found, error) {
	dir := ""
	switch {
	case req.IfExists == api.IfExistsReturn:
	case req.Repository != nil:
		dir = flags.LocalFolder(req.Repository.Source)
	default:
		dir = req.Bind
	}
	if dir == "" && o.Use != "" {
		return nil, cove.Errorf(cove.InvalidArgument, "--devcontainer is about a directory of this machine, "+
			"and a sandbox that is made").WithHint("clone the repository, name its directory, and leave --if-exists out")
	}
	if dir == "" || o.Skip {
		return nil, nil
	}
	c, err := o.context(ctx, sess, dir)
	if err == nil && o.Use == "" {
		if _, err := o.read(dir, c); cove.ErrorCode(err) == cove.NotFound {
			return nil, nil // before anything of the request matters to it
		}
	}
	if err == nil {
		err = over(ctx, sess, &c, *req)
	}
	if err != nil {
		return nil, err
	}
	found, err := o.find(ctx, sess, dir, c)
	if err == nil {
		err = found.Err()
	}
	switch {
	case o.Use == "" && err != nil:
		if !o.Quiet {
			sess.Say.Line("the dev container is not used: %s", cove.ErrorMessage(err))
		}
		return nil, nil
	case err != nil:
		return nil, err
	}
	agreed, err := o.agreed(sess, found)
	if err != nil || !agreed {
		return nil, err
	}
	equip(req, found.Effective)
	if err := found.build(ctx, sess, req); err != nil {
		return found, err
	}
	return found, found.beside(ctx, sess, req)
}

// Agree returns the dev container of a checkout, to which the user agrees by the command.
func (o *Options) Agree(ctx context.Context, sess *session.Session, dir string) (*Found, error) {
	o.Use = cmp.Or(o.Use, defaultDev)
	found, err := o.Explain(ctx, sess, dir)
	if err == nil {
		err = found.Err()
	}
	if err == nil {
		_, err = o.agreed(sess, found)
	}
	return found, err
}

// Always has the dev container used without a question.
func (o *Options) Always() { o.Use = cmp.Or(o.Use, defaultDev) }

// agreed reports whether the user uses this content, now or since an earlier yes.
func (o *Options) agreed(sess *session.Session, e *Found) (bool, error) {
	file, err := sess.InHome("devcontainers", "agreed")
	if err != nil {
		return false, err
	}
	kept, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, cove.Errorf(cove.Forbidden, "cannot read %s: %w", file, ui.Cause(err))
	}
	if slices.Contains(strings.Fields(string(kept)), e.Digest) {
		if !o.Quiet {
			sess.Say.Line("the dev container of %s is used; --no-devcontainer leaves it alone", e.File)
		}
		return true, nil
	}
	if o.Use == "" && o.Quiet {
		return false, nil
	}
	if o.Use == "" {
		if sess.JSON || interact.AskTerminal(sess) == nil {
			sess.Say.Line("%s describes a dev container, which is not used; --devcontainer agrees to it, "+
				"\"cove devcontainer explain\" shows it", e.File)
			return false, nil
		}
		sess.Say.Lines(strings.Split(strings.TrimSuffix(e.Text(), "\n"), "\n")...)
		if sess.Confirm("use this dev container, until its files change? [y/N] ", "y", "yes") != nil {
			sess.Say.Line("it is not used")
			return false, nil
		}
	} else {
		sayLeft(sess, e.Effective)
	}
	return true, session.Keep(file, append(kept, e.Digest+"\n"...))
}

// sayLeft names what of a dev container is not taken, one line each.
func sayLeft(sess *session.Session, e *devcontainer.Effective) {
	for _, l := range e.LeftOut {
		sess.Say.Line("%s, line %d: %s is left out: %s", l.In(e), l.Line, l.Key, l.Why)
	}
	for _, host := range slices.Concat(e.Network.Asked, e.Network.PassThrough) {
		sess.Say.Line("%s wishes to reach %s, which --allow %s lets it", e.File, host, host)
	}
}

// equip lays a request over its dev container: what the command line says wins.
func equip(req *api.SandboxRequest, e *devcontainer.Effective) {
	req.Image = cmp.Or(req.Image, e.Image)
	req.WorkDir = cmp.Or(req.WorkDir, e.WorkDir)
	if req.Image == e.Image { // the users are those of its image
		req.ImageUser = e.User
	}
	if len(e.Env) > 0 {
		env := maps.Clone(e.Env)
		maps.Copy(env, req.Env)
		req.Env = env
	}
	for _, v := range apispec.VolumesOf(e.Volumes) {
		if !slices.ContainsFunc(req.Volumes, func(own api.Volume) bool { return own.Target == v.Target }) &&
			!slices.ContainsFunc(req.Mounts, func(own api.Mount) bool { return own.Target == v.Target }) {
			req.Volumes = append(req.Volumes, v)
		}
	}
	if e.Limits == (cove.Limits{}) {
		return
	}
	var l api.Limits
	if req.Limits != nil {
		l = *req.Limits
	}
	if e.Limits.Memory > 0 {
		l.MemoryMB = max(e.Limits.Memory>>20, 1)
	}
	l.CPUs, l.PIDs = cmp.Or(e.Limits.CPUs, l.CPUs), cmp.Or(e.Limits.PIDs, l.PIDs)
	req.Limits = &l
}
