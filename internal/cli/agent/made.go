package agent

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// ofSandbox lists the flags that were given and say what a new sandbox is made of.
func (o *options) ofSandbox() (names []string) {
	made := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(flags.NewSandbox).AddSandbox(made)
	made.VisitAll(func(f *pflag.Flag) {
		if o.Given(f.Name) {
			names = append(names, f.Name)
		}
	})
	return names
}

// property is one of a sandbox that a flag states: its value there, empty for none, and whether the flag states the
// same.
type property struct {
	has  string
	same bool
}

// checkMade refuses flags that say what a new sandbox is made of, for a task in one that is there. Flags that state its
// own properties are accepted. Errors: InvalidArgument, NotFound.
func (o *options) checkMade(ctx context.Context, c *client.Client, name string) error {
	given := o.ofSandbox()
	if o.Given("profile") {
		given = append(given, "profile")
	}
	if len(given) == 0 {
		return nil
	}
	s, err := (flags.Target{Name: name}).Find(ctx, c)
	if err != nil {
		return err
	}
	n, err := c.SandboxNetwork(ctx, s.ID)
	if err != nil {
		return err
	}
	all, err := o.stated(s, n)
	if err != nil {
		return err
	}
	for _, flag := range given {
		p, known := all[flag]
		if p.same {
			continue
		}
		hint := "leave it out: the sandbox keeps what it was made with"
		if known {
			hint = "leave it out: the sandbox has " + cmp.Or(p.has, "none")
		}
		return cove.Errorf(cove.InvalidArgument, "--%s says what a new sandbox is made of, and %s is there", flag, s.Name).
			WithHint("%s", hint)
	}
	return nil
}

// stated compares flags with a sandbox and its network, as far as they can be.
func (o *options) stated(s api.Sandbox, n api.SandboxNetwork) (map[string]property, error) {
	limits, _, err := o.Limits()
	if err != nil {
		return nil, err
	}
	image, err := flags.AbsoluteImage(o.Image)
	if err != nil {
		return nil, err
	}
	models, err := o.Models.Permission()
	if err != nil {
		return nil, err
	}
	if limits == nil {
		limits = &api.Limits{}
	}
	text := func(stated, has string) property { return property{has, stated == has} }
	number := func(stated, has int64) property {
		return text(strconv.FormatInt(stated, 10), strconv.FormatInt(has, 10))
	}
	mebibytes := func(stated, has int64) property { return property{ui.SizeText(has << 20), stated == has} }
	added := !slices.ContainsFunc(o.Credentials, func(c string) bool { return !slices.Contains(n.Credentials, c) })
	return map[string]property{
		"engine":         {s.Engine, o.Engine == s.Engine || o.Engine == "auto"},
		"isolation":      text(o.Isolation, s.Isolation),
		"image":          text(image, s.Image),
		"profile":        text(o.Profile, s.Profile),
		"network":        text(o.Policy.Network, n.Mode),
		"model-provider": {strings.Join(n.Providers, ","), slices.Equal(models.Providers, n.Providers)},
		"credential":     {strings.Join(n.Credentials, ","), added}, // an agent's own is among them
		"memory":         mebibytes(limits.MemoryMB, s.Limits.MemoryMB),
		"disk":           mebibytes(limits.DiskMB, s.Limits.DiskMB),
		"pids":           number(limits.PIDs, s.Limits.PIDs),
		"cpus":           {strconv.FormatFloat(s.Limits.CPUs, 'g', -1, 64), limits.CPUs == s.Limits.CPUs},
	}, nil
}
