package server

import (
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
or as a build argument, gives equal images equal digests. Needs root.`,
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
			return d.BuildImage(cmd.Context(), sess, wanted)
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
	f.StringVar(&wanted.Target, "target", "", "build the `STAGE` of this name or number; the last when not given")
	f.StringVar(&wanted.Platform, "platform", "",
		"build for `OS/ARCH`, like linux/arm64; this machine's when not given")
	f.BoolVar(&wanted.Pull, "pull", false, "pull the images of FROM and COPY --from that the store lacks")
	f.BoolVar(&wanted.NoCache, "no-cache", false, "use no step of an earlier build")
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

// imageFetch is the hidden command that session.FetchImage runs.
func imageFetch(sess *session.Session, d Daemon) *cobra.Command {
	c := &cobra.Command{
		Use:    session.ImageFetch,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			image := NewImage{Pull: true, Missing: true}
			if err := json.NewDecoder(sess.In).Decode(&image.From); err != nil {
				return cove.Errorf(cove.InvalidArgument, "what to pull is not known: %w", err)
			}
			return d.AddImage(cmd.Context(), sess, image)
		},
	}
	sess.AddJSON(c.Flags(), "print one JSON object")
	return session.OfDaemon(sess, c)
}

// imageArtifact is the hidden command that session.FetchArtifact runs.
func imageArtifact(sess *session.Session, d Daemon) *cobra.Command {
	c := &cobra.Command{
		Use:    session.ImageArtifact,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var ref string
			if err := json.NewDecoder(sess.In).Decode(&ref); err != nil {
				return cove.Errorf(cove.InvalidArgument, "what to fetch is not known: %w", err)
			}
			return d.AddImage(cmd.Context(), sess, NewImage{Artifact: true, From: ref})
		},
	}
	sess.AddJSON(c.Flags(), "print one JSON object")
	return session.OfDaemon(sess, c)
}

// imageEnsure is the hidden command that session.EnsureImage runs.
func imageEnsure(sess *session.Session, d Daemon) *cobra.Command {
	c := &cobra.Command{
		Use:    session.ImageEnsure,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var wanted session.NewBuild
			if err := json.NewDecoder(sess.In).Decode(&wanted); err != nil {
				return cove.Errorf(cove.InvalidArgument, "what to build is not known: %w", err)
			}
			return d.BuildImage(cmd.Context(), sess, wanted)
		},
	}
	sess.AddJSON(c.Flags(), "print one JSON object")
	return session.OfDaemon(sess, c)
}

// imageCompose is the hidden command that session.MergeCompose runs.
func imageCompose(sess *session.Session, d Daemon) *cobra.Command {
	c := &cobra.Command{
		Use:    session.ImageCompose,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var wanted compose.Request
			if err := json.NewDecoder(sess.In).Decode(&wanted); err != nil {
				return cove.Errorf(cove.InvalidArgument, "what to merge is not known: %w", err)
			}
			return d.AddImage(cmd.Context(), sess, NewImage{Compose: &wanted})
		},
	}
	sess.AddJSON(c.Flags(), "print one JSON object")
	return session.OfDaemon(sess, c)
}
