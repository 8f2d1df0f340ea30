package interact

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/agent"
	"github.com/cove-sandbox/cove/internal/agent/userconfig"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/profile"
)

// Config is a question what of the user's own configuration of an agent goes into a new sandbox.
type Config struct {
	Agent   string // empty: the profile's
	Profile string // resolved; empty: none
	Flag    string // of --agent-config; empty: not given
	Ask     bool   // the user may be asked
	Quiet   bool
}

// decisions is the file of remembered answers, in the directory of Cove's state: lines of an agent and an answer.
const decisions = "agent-config"

// BringConfig reads what the flag, the profile, an earlier answer or the user names of the configuration in the user's
// home, and says what that is; nil is nothing.
func BringConfig(ctx context.Context, sess *session.Session, q Config) (*api.AgentConfig, error) {
	choice, err := userconfig.ParseChoice(q.Flag)
	if err != nil {
		return nil, err
	}
	if q.Profile != "" && (!choice.Said || q.Agent == "") {
		p, err := profileOf(ctx, sess, q.Profile)
		if err != nil {
			return nil, err
		}
		q.Agent = cmp.Or(q.Agent, p.Agent)
		if !choice.Said {
			if choice, err = userconfig.ParseChoice(p.AgentConfig); err != nil {
				return nil, err
			}
		}
	}
	of, known, err := configOf(sess, q.Agent)
	if err != nil {
		return nil, err
	}
	if !known {
		if q.Flag != "" && choice.Any() {
			return nil, cove.Errorf(cove.Unsupported, "there is no configuration of %s that Cove knows", cmp.Or(q.Agent,
				"no agent")).WithHint("leave --agent-config out; an agent's declaration lists it in config (docs/agents.md)")
		}
		return nil, nil
	}
	home := sess.Getenv("HOME")
	if !choice.Said {
		if choice, err = decided(sess, q, of, home); err != nil {
			return nil, err
		}
	}
	if !choice.Any() || home == "" {
		return nil, nil
	}
	found, err := userconfig.Read(home, sess.Getenv, of, choice)
	if err != nil {
		return nil, err
	}
	if !q.Quiet {
		sess.Say.Lines(configLines(found)...)
	}
	if len(found.Files) == 0 {
		return nil, nil
	}
	made := &api.AgentConfig{Brought: bounded(found.Brought), LeftOut: bounded(found.LeftOut)}
	for _, f := range found.Files {
		made.Files = append(made.Files, flags.File(f.Path, f.Data, f.Mode))
	}
	return made, nil
}

// profileOf returns a profile, or an empty one for a name that the server does not know: it refuses the request itself.
func profileOf(ctx context.Context, sess *session.Session, name string) (api.Profile, error) {
	all, err := sess.Profiles(ctx)
	var p api.Profile
	if err == nil {
		p, err = profile.Find(all, name)
	}
	if cove.ErrorCode(err) == cove.NotFound {
		return api.Profile{}, nil
	}
	return p, err
}

// configOf returns the declaration of an agent, and whether it lists a configuration.
func configOf(sess *session.Session, name string) (agent.Agent, bool, error) {
	cfg, err := sess.Config()
	if err != nil {
		return agent.Agent{}, false, err
	}
	of, err := agent.Find(agent.Merge(cfg.Agents), name)
	return of, err == nil && len(of.Config) > 0, nil // another is a program of the image, or the server's
}

// decided returns the answer that the user has given before, or now.
func decided(sess *session.Session, q Config, of agent.Agent, home string) (userconfig.Choice, error) {
	all, _ := userconfig.ParseChoice("all")
	file, err := sess.InHome(decisions)
	if err != nil {
		return userconfig.Choice{}, err
	}
	kept, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return userconfig.Choice{}, nil // of another user: nothing was decided, and nothing can be kept
	}
	for line := range strings.Lines(string(kept)) {
		if name, answer, _ := strings.Cut(strings.TrimSpace(line), " "); name == of.Name {
			if answer == "always" {
				return all, nil
			}
			return userconfig.Choice{}, nil
		}
	}
	if !q.Ask || home == "" {
		return userconfig.Choice{}, nil
	}
	found, err := userconfig.Read(home, sess.Getenv, of, all)
	if err != nil || len(found.Brought) == 0 {
		return userconfig.Choice{}, nil // there is nothing to bring
	}
	sess.Say.Line("there is a configuration of %s of your own in %s: %s", of.Title, found.From,
		listed(found.Brought))
	for {
		sess.Say.Ask("bring it into the sandbox, without keys? [y]es, [n]o, [a]lways: ", ui.Columns(sess.Err))
		typed, err := ui.TypedLine(sess.In)
		answer := strings.ToLower(strings.TrimSpace(typed))
		switch {
		case err != nil:
			return userconfig.Choice{}, cove.Errorf(cove.Canceled, "nothing was done")
		case slices.Contains([]string{"y", "yes"}, answer):
			return all, nil
		case slices.Contains([]string{"n", "no"}, answer):
			sess.Say.Line("it is not brought, and not asked for again; --agent-config brings it")
			return userconfig.Choice{}, session.Keep(file, append(ended(kept), of.Name+" never\n"...))
		case slices.Contains([]string{"a", "always"}, answer):
			return all, session.Keep(file, append(ended(kept), of.Name+" always\n"...))
		}
		sess.Say.Line("%.40q is none of y, n and a", answer)
	}
}

func ended(lines []byte) []byte {
	if len(lines) > 0 && !bytes.HasSuffix(lines, []byte("\n")) {
		lines = append(lines, '\n')
	}
	return lines
}

// configLines says what was brought, and what was not.
func configLines(b userconfig.Bundle) (lines []string) {
	switch {
	case len(b.Brought) > 0:
		lines = append(lines, "brought of "+b.From+": "+listed(b.Brought))
	case len(b.Files) == 0:
		lines = append(lines, "nothing was brought of "+b.From)
	}
	if len(b.LeftOut) > 0 {
		lines = append(lines, "left out of it: "+listed(b.LeftOut))
		if slices.ContainsFunc(b.LeftOut, func(s string) bool { return strings.HasSuffix(s, "looks like a key") }) {
			lines = append(lines, "  keys stay outside: the gateway sets them on requests (--credential, docs/credentials.md)")
		}
	}
	return lines
}

// mostListed is how many parts of a configuration are named, and mostSent how many are sent.
const (
	mostListed = 12
	mostSent   = 200
)

func listed(all []string) string {
	if len(all) > mostListed {
		all = append(slices.Clone(all[:mostListed]), "and "+ui.Counted(len(all)-mostListed, "more", "more"))
	}
	return strings.Join(all, ", ")
}

func bounded(all []string) []string { return all[:min(len(all), mostSent)] }
