package server

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/config"
)

func poolCommand(sess *session.Session) *cobra.Command {
	return ui.Group(&cobra.Command{
		Use:   "pool",
		Short: "See and fill the pool of prepared sandboxes",
		Long: `A server keeps sandboxes prepared for executions like those that it was asked
for: made, and for python, node, bash and sh with the interpreter started. Each
serves one execution and is destroyed. How many it keeps of a kind follows from
what is asked for, up to sandbox.pool.size (sandbox.pool.docker.size for the
docker engine), within sandbox.pool.memory_mb. Entries of sandbox.pool.warm have
numbers of their own for a runtime, image, engine and limits.

An execution with arguments, variables, files or input gets an empty one, in
which its interpreter is started; one that gives nothing but code gets a started
interpreter. With sandbox.pool.size 0, each sandbox is made when it is asked for.`,
		Example: "  cove pool status\n  cove pool warm python\n  cove pool drain",
	}, poolStatus(sess), poolWarm(sess), poolDrain(sess))
}

func poolStatus(sess *session.Session) *cobra.Command {
	return sess.Showing(&cobra.Command{
		Use: "status", Short: "Show which sandboxes are prepared, and how often one was there",
		Example: "  cove pool status --json",
	}, func(cmd *cobra.Command, _ []string) (ui.Result, error) {
		p, err := session.OfServer(cmd, sess, func(c *client.Client, ctx context.Context) (api.Pool, error) {
			return client.PoolOf(c).Status(ctx)
		})
		return poolResult(p), err
	})
}

func poolResult(p api.Pool) ui.Result {
	headings := []string{"FOR", "ENGINE", "IMAGE", "LIMITS", "READY", "KEEP", "REFILL", "AGE", "MEMORY", "HITS", "MISSES"}
	r := ui.Listing("kinds", p.Kinds, headings, func(k api.PoolKind) []string {
		return []string{cmp.Or(k.Language, "any language"), k.Engine, ui.ShortID(cmp.Or(k.Image, "host")),
			fmt.Sprintf("%d MB, %g CPUs", k.MemoryMB, k.CPUs), fmt.Sprintf("%d of %d", k.Ready, k.Size),
			fmt.Sprintf("%d to %d", k.Least, k.Most), refillText(k.Refill),
			config.Duration(k.MaxAge * float64(time.Second)).String(), ui.SizeText(k.Memory),
			strconv.FormatInt(k.Hits, 10), strconv.FormatInt(k.Misses, 10)}
	})
	r.Value = p
	return r
}

// refillText says when others are prepared.
func refillText(below int) string {
	if below == 0 {
		return "at once"
	}
	return fmt.Sprintf("below %d", below)
}

func poolWarm(sess *session.Session) *cobra.Command {
	w := api.PoolWarm{Count: 1}
	c := sess.Showing(&cobra.Command{
		Use: "warm LANGUAGE", Short: "Keep sandboxes prepared for a language",
		Long: `Keep sandboxes prepared for executions that ask for nothing but the language,
and perhaps an image, until the pool is drained or the server ends.
sandbox.pool.warm does it at each start of a server, and for other engines and
limits.`,
		Example: "  cove pool warm python\n  cove pool warm node --count 4\n" +
			"  cove pool warm python --image oci:/images/python",
	}, func(cmd *cobra.Command, args []string) (ui.Result, error) {
		w.Language = args[0]
		if w.Count < 1 {
			return ui.Result{}, cove.Errorf(cove.InvalidArgument, "--count %d is out of range", w.Count).
				WithHint("use 1 or more; \"cove pool drain\" ends it")
		}
		p, err := session.OfServer(cmd, sess, func(c *client.Client, ctx context.Context) (api.Pool, error) {
			return client.PoolOf(c).Warm(ctx, w)
		})
		return poolResult(p), err
	})
	c.Flags().IntVar(&w.Count, "count", 1, "keep `N`")
	c.Flags().StringVar(&w.Image, "image", "", "of executions in the image `REF`")
	return c
}

func poolDrain(sess *session.Session) *cobra.Command {
	return &cobra.Command{
		Use: "drain", Short: "Destroy the prepared sandboxes, and forget what was asked for",
		Example: "  cove pool drain",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return sess.WithServer(cmd, func(ctx context.Context, c *client.Client) error { return client.PoolOf(c).Drain(ctx) })
		},
	}
}
