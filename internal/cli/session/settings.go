package session

import (
	"context"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
)

// differing returns the settings of this command that the server of this machine has otherwise: those that were typed
// (a flag, a file) or choose another state, and those of the environment.
func differing(ctx context.Context, sess *Session, c *client.Client) (typed, inherited []string, err error) {
	cfg, err := sess.Config()
	if err != nil {
		return nil, nil, err
	}
	theirs, err := client.AsOwner(c).SettingDigests(ctx)
	if cove.ErrorCode(err) == cove.NotFound {
		return nil, nil, nil // a server of an earlier version
	}
	for _, name := range cfg.Differing(theirs) {
		if name != "home" && strings.HasPrefix(string(cfg.Origin(name)), "env ") {
			inherited = append(inherited, name)
		} else {
			typed = append(typed, name)
		}
	}
	return typed, inherited, err
}

// reconcile makes the server of this machine and the settings of this command agree. A server in the background in
// which nothing runs is started anew with them, and then its address is returned. Otherwise settings that were typed
// are an error, and those of the environment a line. Errors: Conflict.
func reconcile(ctx context.Context, sess *Session, c *client.Client, h api.Health) (anew string, err error) {
	typed, inherited, err := differing(ctx, sess, c)
	all := slices.Concat(typed, inherited)
	if err != nil || len(all) == 0 {
		return "", err
	}
	if h.Background && idle(ctx, c, h) {
		if _, err := StopServer(ctx, sess); err != nil {
			return "", err
		}
		sess.Say.Line("the server in the background had another %s than this command: it is started anew",
			strings.Join(all, ", "))
		return sess.StartServer(ctx)
	}
	remedy := "leave the setting out, or have the server started with it"
	if h.Background {
		remedy = "\"cove server stop\" ends it, and the next command starts one with its own settings; sandboxes stay"
	}
	if slices.Contains(all, "home") {
		remedy = "give this home a server of its own: set COVE_RUN_DIR, too"
	}
	if len(typed) > 0 {
		return "", cove.Errorf(cove.Conflict, "the server that answers (process %d) has another %s than this command",
			h.PID, strings.Join(typed, ", ")).WithHint("%s", remedy)
	}
	sess.Say.Line("the server that answers (process %d) has another %s than this shell, and uses its own; %s", h.PID,
		strings.Join(inherited, ", "), remedy)
	return "", nil
}

// idle reports that nothing runs in a server that would have to end.
func idle(ctx context.Context, c *client.Client, h api.Health) bool {
	if h.Active+h.Queued > 0 {
		return false
	}
	l, err := c.Sandboxes(ctx)
	runs := func(s api.Sandbox) bool { return s.State != string(cove.StateStopped) }
	return err == nil && !slices.ContainsFunc(l.Sandboxes, runs)
}

// ShareKeys hands this shell's keys to the server of this machine that answers c. A named server has its own.
func ShareKeys(ctx context.Context, sess *Session, c *client.Client) {
	if sess.ServerAddress() != "" {
		return
	}
	if h, err := c.Health(ctx); err == nil {
		handKeys(ctx, sess, c, h.Reads)
	}
}

// handKeys hands the variables that credentials are read from, as this shell has them, to the server of this machine,
// and says what became of them.
func handKeys(ctx context.Context, sess *Session, c *client.Client, reads []string) {
	given := map[string]string{}
	for _, name := range reads {
		if v := sess.Getenv(name); v != "" {
			given[name] = v
		}
	}
	if len(given) == 0 {
		return
	}
	taken, err := client.AsOwner(c).HandEnvironment(ctx, given)
	if err != nil {
		sess.Say.Line("the keys of this shell cannot be handed to the server: %s", cove.ErrorMessage(err))
		return
	}
	if len(taken.Changed) > 0 {
		sess.Say.Line("the server uses this shell's %s from now on", strings.Join(taken.Changed, ", "))
	}
	if len(taken.Kept) > 0 {
		sess.Say.Line("the server has another %s than this shell, and uses its own", strings.Join(taken.Kept, ", "))
	}
}
