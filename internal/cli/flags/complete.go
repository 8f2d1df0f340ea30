package flags

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/agent/userconfig"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/pattern"
)

// names are the values that a shell offers, each with a description behind a tab or without. Those that a server knows
// are none when no server answers; none is started.
type names func(context.Context) []string

// Complete gives c and the commands below it what a shell offers for a flag of a name, and for the first word of a
// usage line. A command and a flag that have a completion keep it. Files are offered where a usage line has FILE or the
// like.
func Complete(sess *session.Session, c *cobra.Command) {
	all := completions{flags: valuesOfFlags(sess), arguments: valuesOfArguments(sess)}
	all.of(c)
}

type completions struct {
	flags     map[string]names // by the flag's name
	arguments map[string]names // by the command's path and the argument's name, or the argument's name alone
}

// directories are flags that take one of the machine's.
var directories = []string{"dir", "bind", "home", "run-dir", "state"}

// ofFiles are the arguments for which files are offered.
var ofFiles = pattern.New(`\b(FILE|SOURCE|LANGUAGE|COMMAND|PROMPT|DIR|PATH)\b`)

var firstArgument = pattern.New(`^\S+ \[?([A-Z]+)`)

func (a completions) of(c *cobra.Command) {
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if _, taken := c.GetFlagCompletionFunc(f.Name); taken {
			return
		}
		values, known := a.flags[f.Name]
		switch {
		case slices.Contains(directories, f.Name) && !ofSandbox(c, f):
			c.MarkFlagDirname(f.Name)
		case known:
			c.RegisterFlagCompletionFunc(f.Name, offer(values))
		}
	})
	if c.ValidArgsFunction == nil && c.Runnable() && !ofFiles.MatchString(c.Use) {
		c.ValidArgsFunction = ui.CompleteFirst(func(context.Context) []string { return nil })
		if m := firstArgument.FindStringSubmatch(c.Use); m != nil {
			values, ok := a.arguments[c.CommandPath()+" "+m[1]]
			if !ok {
				values, ok = a.arguments[m[1]]
			}
			switch {
			case ok && strings.ContainsAny(c.Use, ".…"):
				c.ValidArgsFunction = ui.CompleteEach(values)
			case ok:
				c.ValidArgsFunction = ui.CompleteFirst(values)
			}
		}
	}
	for _, below := range c.Commands() {
		a.of(below)
	}
}

// offer completes a flag with the same values whatever is typed before it.
func offer(values names) cobra.CompletionFunc {
	return func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return values(c.Context()), cobra.ShellCompDirectiveNoFileComp
	}
}

// ofSandbox reports a flag whose directory is inside a sandbox.
func ofSandbox(c *cobra.Command, f *pflag.Flag) bool {
	return f.Name == "dir" && strings.Contains(f.Usage, "inside") || c.Name() == "exec" || c.Name() == "shell"
}

// oneOf offers the same values always.
func oneOf(values ...string) names { return func(context.Context) []string { return values } }

func valuesOfFlags(sess *session.Session) map[string]names {
	sandboxes := func(ctx context.Context) []string { return sandboxNames(ctx, sess) }
	return map[string]names{
		"network": oneOf("none\tnothing leaves", "limited\twhat rules allow",
			"host-only\tservices of this machine that rules name", "open\teverything but private addresses"),
		"engine": oneOf(append(engine.Names(), engine.Auto)...),
		"isolation": oneOf(string(cove.IsolationContainer), string(cove.IsolationGVisor),
			string(cove.IsolationMicroVM)),
		"if-exists": oneOf(api.IfExistsReturn, api.IfExistsError),
		"scope": oneOf("once\tthis request", "sandbox\tequal ones of this sandbox",
			"policy\tequal ones of every sandbox"),
		"agent-config": oneOf(append([]string{"all", "none"}, userconfig.Kinds...)...),
		"preset":       oneOf(policy.PresetNames()...),
		"platform":     oneOf("linux/amd64", "linux/arm64"),
		"method":       oneOf("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"),
		"verdict":      oneOf("allow", "deny"),
		"image": func(ctx context.Context) []string {
			return append([]string{"host"}, session.ImageNames(ctx, sess)...)
		},
		"model-provider": func(context.Context) []string { return session.ProviderNames(sess) },
		"credential":     func(ctx context.Context) []string { return credentialNames(ctx, sess) },
		"agent":          func(ctx context.Context) []string { return agentNames(ctx, sess) },
		"language":       func(ctx context.Context) []string { return runtimeNames(ctx, sess) },
		"resume":         func(ctx context.Context) []string { return runNames(ctx, sess) },
		"execution":      func(ctx context.Context) []string { return executionNames(ctx, sess) },
		"sandbox":        sandboxes,
	}
}

func valuesOfArguments(sess *session.Session) map[string]names {
	running := func(ctx context.Context) []string { return executionNames(ctx, sess, api.StatusRunning) }
	return map[string]names{
		"RUN":          func(ctx context.Context) []string { return runNames(ctx, sess) },
		"EXECUTION":    func(ctx context.Context) []string { return executionNames(ctx, sess) },
		"IMAGE":        func(ctx context.Context) []string { return session.ImageNames(ctx, sess) },
		"cove kill ID": running,
		"cove approve ID": func(ctx context.Context) (all []string) {
			holds := session.OfRunning(ctx, sess, func(c *client.Client, ctx context.Context) ([]api.Hold, error) {
				return c.Holds(ctx, "")
			})
			for _, h := range holds {
				all = append(all, h.ID)
			}
			return all
		},
		"cove approvals revoke ID": func(ctx context.Context) (all []string) {
			for _, given := range session.OfRunning(ctx, sess, (*client.Client).Approvals) {
				all = append(all, given.ID)
			}
			return all
		},
		"cove gateway remove NAME": func(ctx context.Context) (all []string) {
			for _, c := range session.OfRunning(ctx, sess, (*client.Client).GatewayClients) {
				all = append(all, c.Name)
			}
			return all
		},
		"cove credentials check NAME": func(ctx context.Context) []string { return credentialNames(ctx, sess) },
		"cove config new-key NAME":    oneOf(),
	}
}

func credentialNames(ctx context.Context, sess *session.Session) (all []string) {
	l := session.OfRunning(ctx, sess, func(c *client.Client, ctx context.Context) (api.CredentialList, error) {
		return client.AsOwner(c).Credentials(ctx, false)
	})
	for _, c := range l.Credentials {
		all = append(all, c.Name+"\t"+c.State)
	}
	return all
}

func agentNames(ctx context.Context, sess *session.Session) (all []string) {
	for _, a := range session.OfRunning(ctx, sess, (*client.Client).Agents) {
		all = append(all, a.Name+"\t"+ui.Printable(a.Title))
	}
	return all
}

func runtimeNames(ctx context.Context, sess *session.Session) []string {
	all := map[string]bool{}
	for _, r := range session.OfRunning(ctx, sess, (*client.Client).Runtimes) {
		all[r.Name] = true
	}
	return slices.Sorted(maps.Keys(all))
}

func runNames(ctx context.Context, sess *session.Session) (all []string) {
	l := session.OfRunning(ctx, sess, func(c *client.Client, ctx context.Context) (api.RunList, error) {
		return c.Runs(ctx, client.RunQuery{})
	})
	for _, r := range l.Runs {
		all = append(all, r.ID+"\t"+r.Agent+": "+ui.Printable(r.Prompt))
	}
	return all
}

// executionNames offers the executions of a status, or all of them.
func executionNames(ctx context.Context, sess *session.Session, status ...api.Status) (all []string) {
	l := session.OfRunning(ctx, sess, func(c *client.Client, ctx context.Context) (api.ExecutionList, error) {
		return c.List(ctx, client.ListOptions{Status: append(status, "")[0]})
	})
	for _, e := range l.Executions {
		all = append(all, e.ID+"\t"+e.Language+", "+string(e.Status))
	}
	return all
}
