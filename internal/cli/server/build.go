package server

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/compose"
)

// epochArg is a build argument that is taken from the environment, too.
const epochArg = "SOURCE_DATE_EPOCH"

func imageBuild(sess *session.Session, d Daemon) *cobra.Command {
	var o flags.Spec
	var wanted session.NewBuild
	var args, secrets []string
	var output, onError string
	c := &cobra.Command{
		Use:   "build CONTEXT",
		Short: "Build an image from a Dockerfile",
		Long: `Build an image from a Dockerfile and the files of a directory, without a
container engine. Each RUN runs as root of a sandbox of its own, which has no
network unless --network, --allow, --policy or --preset say what it may reach;
ADD of a URL reaches the same.
FROM takes images of the store; with --pull those that it lacks are pulled.

A secret enters the sandbox of the commands that mount it, and neither a layer
nor the cache. Where the gateway can set a credential itself, it need not enter.

What is not supported is refused by name. SOURCE_DATE_EPOCH, in the environment
or as a build argument, gives equal images equal digests. As another user than root
it needs subordinate ids.`,
		Example: `  cove image build -t mine .
  cove image build -t tests --target test --build-arg VERSION=3 --preset debian .`,
		RunE: func(cmd *cobra.Command, words []string) (err error) {
			o.Given = cmd.Flags().Changed
			if wanted.Args, err = buildArgs(args, sess.Getenv); err != nil {
				return err
			}
			if wanted.Secrets, err = buildSecrets(secrets, sess.Getenv); err != nil {
				return err
			}
			if wanted.Inspect, err = inspects(sess, onError); err != nil {
				return err
			}
			resolved, err := o.Resolve(sess.Getenv)
			if err != nil {
				return err
			}
			wanted.Network, wanted.Limits = resolved.Network, resolved.Limits
			if wanted.Context, err = contextOf(words[0]); err != nil {
				return err
			}
			if wanted.Dockerfile != "" {
				if wanted.Dockerfile, err = filepath.Abs(wanted.Dockerfile); err != nil {
					return err
				}
			}
			if cmd.Flags().Changed("output") {
				if wanted.Output, err = outputOf(output); err != nil {
					return err
				}
			}
			if wanted.Push && wanted.Name == "" {
				return cove.Errorf(cove.InvalidArgument, "--push has no name to send the image to").
					WithHint("name a place in a registry: -t HOST/NAME:TAG")
			}
			return d.Images().BuildImage(cmd.Context(), sess, wanted)
		},
	}
	f := c.Flags()
	f.StringVarP(&wanted.Dockerfile, "dockerfile", "f", "",
		"`FILE` with the instructions; Dockerfile of the context when not given")
	f.StringVarP(&wanted.Name, "tag", "t", "", "what it will be called: `NAME[:TAG]`")
	f.StringArrayVar(&args, "build-arg", nil,
		"give the ARG `NAME=VALUE`, or NAME with this shell's value (repeatable)")
	f.StringArrayVar(&secrets, "secret", nil,
		"give RUN --mount=type=secret `id=NAME[,src=FILE|,env=VARIABLE]` (repeatable)")
	f.StringVarP(&output, "output", "o", "",
		"write the image, too: `type=oci|docker|local,dest=PATH`, or PATH of a directory for its files")
	f.BoolVar(&wanted.Push, "push", false, "send the image to the registry of its name, as \"cove image push\" does")
	f.StringVar(&wanted.Target, "target", "", "build the `STAGE` of this name or number; the last when not given")
	f.StringVar(&wanted.Platform, "platform", "",
		"build for `OS/ARCH`, like linux/arm64; this machine's when not given")
	f.BoolVar(&wanted.Pull, "pull", false, "pull the images of FROM and COPY --from that the store lacks")
	f.BoolVar(&wanted.NoCache, "no-cache", false, "use no step of an earlier build")
	f.BoolVar(&wanted.ToolCaches, "tool-caches", false,
		"keep the caches of go, npm, pip, yarn, composer, ccache and sccache for the next build, outside of the image")
	f.StringVar(&onError, "on-error", "",
		"`shell`: look with a shell into the state before a command that has failed; its end ends the build")
	o.Policy.Add(f)
	f.StringVar(&o.Memory, "memory", "", "memory `SIZE` of a command, like 2G")
	f.Float64Var(&o.CPUs, "cpus", 0, "`CORES` of a command, like 0.5")
	f.Int64Var(&o.PIDs, "pids", 0, "`COUNT` of processes and threads of a command")
	sess.AddJSON(f, "print one JSON object")
	f.SortFlags = false
	return session.OfDaemon(sess, c)
}

// inspects reads --on-error.
func inspects(sess *session.Session, onError string) (bool, error) {
	switch {
	case onError == "":
		return false, nil
	case onError != "shell":
		return false, cove.Errorf(cove.InvalidArgument, "--on-error %.40q is not known", onError).
			WithHint("--on-error shell")
	case sess.JSON || !ui.IsTerminal(sess.In) || !ui.IsTerminal(sess.Out):
		return false, cove.Errorf(cove.InvalidArgument, "--on-error shell needs a terminal for its shell").
			WithHint("leave it out, or run the build at a terminal, without --json")
	}
	return true, nil
}

// buildArgs reads build arguments.
func buildArgs(pairs []string, getenv func(string) string) (map[string]string, error) {
	all := map[string]string{}
	if v := getenv(epochArg); v != "" {
		all[epochArg] = v
	}
	for _, pair := range pairs {
		name, value, given := strings.Cut(pair, "=")
		if name == "" {
			return nil, cove.Errorf(cove.InvalidArgument, "--build-arg %q has no name", pair).WithHint("write NAME=VALUE")
		}
		if !given {
			if value = getenv(name); value == "" {
				continue
			}
		}
		all[name] = value
	}
	return all, nil
}

// outputOf reads where a build writes its image.
func outputOf(text string) (*session.SavedImage, error) {
	out := &session.SavedImage{Format: "local", To: text}
	if strings.Contains(text, "=") {
		out = &session.SavedImage{}
		for part := range strings.SplitSeq(text, ",") {
			switch name, value, _ := strings.Cut(part, "="); name {
			case "type":
				out.Format = value
			case "dest":
				out.To = value
			default:
				return nil, badOutput(text)
			}
		}
	}
	if out.To == "" || out.To == "-" || !slices.Contains([]string{"oci", "docker", "local"}, out.Format) {
		return nil, badOutput(text)
	}
	return out, nil
}

func badOutput(text string) error {
	return cove.Errorf(cove.InvalidArgument, "--output %.200q cannot be read, or is not supported", text).
		WithHint("write type=oci,dest=FILE, type=docker,dest=FILE or type=local,dest=DIR")
}

// contextOf returns the path of the context of a build.
func contextOf(word string) (string, error) {
	if info, err := os.Stat(word); err != nil || !info.IsDir() {
		return "", cove.Errorf(cove.InvalidArgument, "%.200q is not a directory", word).
			WithHint("the context of a build is a directory of this machine; archives and URLs are not supported")
	}
	return filepath.Abs(word)
}

// inDaemon returns the hidden commands below "image" that package session runs, each with a value on standard input.
func inDaemon(sess *session.Session, d Daemon) []*cobra.Command {
	return []*cobra.Command{
		reading(sess, session.ImageEnsure, func(ctx context.Context, wanted session.NewBuild) error {
			return d.Images().BuildImage(ctx, sess, wanted)
		}),
		reading(sess, session.ImageFetch, func(ctx context.Context, ref string) error {
			return d.Images().AddImage(ctx, sess, NewImage{Pull: true, Missing: true, From: ref})
		}),
		reading(sess, session.ImageArtifact, func(ctx context.Context, ref string) error {
			return d.Images().FetchArtifact(ctx, sess, ref)
		}),
		reading(sess, session.ImageCompose, func(ctx context.Context, files compose.Request) error {
			return d.Images().MergeCompose(ctx, sess, files)
		}),
	}
}

// reading is a hidden command that reads a value and prints JSON.
func reading[T any](sess *session.Session, use string, run func(context.Context, T) error) *cobra.Command {
	c := &cobra.Command{
		Use:    use,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var wanted T
			if err := json.NewDecoder(sess.In).Decode(&wanted); err != nil {
				return cove.Errorf(cove.InvalidArgument, "the input of \"image %s\" cannot be read: %w", use, err)
			}
			return run(cmd.Context(), wanted)
		},
	}
	sess.AddJSON(c.Flags(), "print one JSON object")
	return session.OfDaemon(sess, c)
}
