// Package dockerfile turns a Dockerfile into what a build does. It is pure: bytes, build arguments and a target become
// stages, and a stage over a base's configuration becomes steps, in which every word is expanded. BuildKit's packages
// parse the syntax and expand the words.
//
// A stage's steps depend on the configuration of its base, for its variables and its ONBUILD triggers. So [Parse]
// returns the stages, and [File.Steps] the steps of one stage once its base is known.
package dockerfile

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"

	"github.com/cove-sandbox/cove"
)

// Config is an image's configuration, as its author states it.
type Config = v1.Config

// MaxSize is the most bytes of a Dockerfile.
const MaxSize = 1 << 20

// Scratch is the name of the base without any file.
const Scratch = "scratch"

// Options hold a user's choices beside the Dockerfile.
type Options struct {
	Args     map[string]string // --build-arg
	Target   string            // the stage to build, by name or number; empty: the last
	Platform string            // of the result, "linux/amd64"
	Host     string            // of this machine, likewise
}

// File is a parsed Dockerfile.
type File struct {
	o      Options
	escape rune
	stages []instructions.Stage
	bases  []Stage
	global map[string]string // ARG before the first FROM, and the platform's
	target int
}

// Stage is one stage as far as its FROM states it.
type Stage struct {
	Name     string // as the Dockerfile calls it, or "stage-1"
	From     int    // the stage that it begins with; -1 for an image
	Image    string // the reference of its base, where From is -1; Scratch for none
	Platform string // of Image
}

// Parse parses a Dockerfile. Errors: InvalidArgument, TooLarge, Unsupported.
func Parse(data []byte, o Options) (*File, error) {
	if len(data) > MaxSize {
		return nil, cove.Errorf(cove.TooLarge, "the Dockerfile has more than %d bytes", MaxSize)
	}
	parsed, err := parser.Parse(bytes.NewReader(data))
	if err != nil {
		return nil, invalid(nil, err)
	}
	stages, args, err := instructions.Parse(parsed.AST, nil)
	if err != nil {
		return nil, invalid(nil, err)
	}
	if len(stages) == 0 {
		return nil, cove.Errorf(cove.InvalidArgument, "the Dockerfile has no FROM")
	}
	f := &File{o: o, escape: parsed.EscapeToken, stages: stages, global: platformArgs(o)}
	if err := f.takeGlobal(args); err != nil {
		return nil, err
	}
	for i := range stages {
		stage, err := f.base(i)
		if err != nil {
			return nil, err
		}
		f.bases = append(f.bases, stage)
	}
	f.target, err = f.find(o.Target)
	return f, err
}

// Target is the number of the stage to build.
func (f *File) Target() int { return f.target }

// Stage describes the stage of a number.
func (f *File) Stage(i int) Stage { return f.bases[i] }

// Needs lists the stages that a stage needs, without those that triggers of its base may add.
func (f *File) Needs(i int) (needs []int) {
	if from := f.bases[i].From; from >= 0 {
		needs = append(needs, from)
	}
	for _, c := range f.stages[i].Commands {
		for _, name := range namesIn(c) {
			if n := f.source(i, name).Stage; n >= 0 {
				needs = append(needs, n)
			}
		}
	}
	return needs
}

// namesIn lists the stages and images that an instruction takes files from.
func namesIn(c instructions.Command) (names []string) {
	switch c := c.(type) {
	case *instructions.CopyCommand:
		if c.From != "" {
			names = append(names, c.From)
		}
	case *instructions.RunCommand:
		for _, m := range instructions.GetMounts(c) {
			if m.From != "" {
				names = append(names, m.From)
			}
		}
	}
	return names
}

// Image is an image that a stage begins with or copies from.
type Image struct {
	Ref      string // its reference
	Platform string
}

// Inputs lists the images that a stage begins with or copies from, and reports whether it copies from the context, as
// far as its own instructions say so.
func (f *File) Inputs(i int) (images []Image, context bool) {
	if s := f.bases[i]; s.From < 0 {
		images = append(images, Image{s.Image, s.Platform})
	}
	for _, c := range f.stages[i].Commands {
		for _, name := range namesIn(c) {
			if from := f.source(i, name); from.Image != "" {
				images = append(images, Image{from.Image, f.o.Platform})
			}
		}
		switch c := c.(type) {
		case *instructions.CopyCommand:
			context = context || c.From == "" && len(c.SourcePaths) > 0
		case *instructions.AddCommand:
			context = context || len(c.SourcePaths) > 0
		case *instructions.RunCommand:
			context = context || len(instructions.GetMounts(c)) > 0
		case *instructions.OnbuildCommand:
			context = true // what it is about is known later
		}
	}
	return images, context
}

// platformArgs are the arguments that every Dockerfile may use.
func platformArgs(o Options) map[string]string {
	args := map[string]string{"TARGETSTAGE": o.Target}
	if o.Target == "" {
		args["TARGETSTAGE"] = "default"
	}
	for prefix, platform := range map[string]string{"TARGET": o.Platform, "BUILD": o.Host} {
		parts := append(strings.SplitN(platform, "/", 3), "", "")
		args[prefix+"PLATFORM"], args[prefix+"OS"], args[prefix+"ARCH"] = platform, parts[0], parts[1]
		args[prefix+"VARIANT"] = parts[2]
	}
	for name := range args {
		if v, ok := o.Args[name]; ok {
			args[name] = v
		}
	}
	return args
}

// takeGlobal reads the arguments before the first FROM.
func (f *File) takeGlobal(args []instructions.ArgCommand) error {
	for i := range args {
		for _, kv := range args[i].Args {
			if v, ok := f.o.Args[kv.Key]; ok {
				f.global[kv.Key] = v
				continue
			}
			if kv.Value == nil {
				continue
			}
			v, err := f.word(*kv.Value, f.global)
			if err != nil {
				return invalid(&args[i], err)
			}
			f.global[kv.Key] = v
		}
	}
	return nil
}

// base reads the FROM of a stage.
func (f *File) base(i int) (Stage, error) {
	from := f.stages[i]
	s := Stage{Name: from.Name, From: -1}
	if s.Name == "" {
		s.Name = "stage-" + strconv.Itoa(i)
	}
	name, err := f.word(from.BaseName, f.global)
	if err != nil {
		return s, invalid(nil, err)
	}
	if name == "" {
		return s, cove.Errorf(cove.InvalidArgument, "the base of stage %s is empty: FROM %s", s.Name, from.BaseName).
			WithHint("give its argument a default before the first FROM, or a value with --build-arg")
	}
	if s.Platform, err = f.word(from.Platform, f.global); err != nil {
		return s, invalid(nil, err)
	}
	if s.Platform == "" {
		s.Platform = f.o.Platform
	}
	source := f.source(i, name)
	if s.From = source.Stage; s.From < 0 {
		s.Image = name
	}
	return s, nil
}

// Source names the origin of files: a stage, an image, or neither, which is the build context.
type Source struct {
	Stage int    // -1: none
	Image string // reference; empty: none
}

// Context reports whether the files come from the build context.
func (s Source) Context() bool { return s.Stage < 0 && s.Image == "" }

// source finds what a name means in the stage i. A number is a stage where there is one.
func (f *File) source(i int, name string) Source {
	if n, ok := instructions.HasStage(f.stages[:i], name); ok {
		return Source{Stage: n}
	}
	if n, err := strconv.Atoi(name); err == nil && n >= 0 && n < i {
		return Source{Stage: n}
	}
	return Source{Stage: -1, Image: name}
}

func (f *File) find(target string) (int, error) {
	if target == "" {
		return len(f.stages) - 1, nil
	}
	if n, ok := instructions.HasStage(f.stages, target); ok {
		return n, nil
	}
	if n, err := strconv.Atoi(target); err == nil && n >= 0 && n < len(f.stages) {
		return n, nil
	}
	var names []string
	for _, s := range f.bases {
		names = append(names, s.Name)
	}
	return 0, cove.Errorf(cove.NotFound, "the Dockerfile has no stage %.80q", target).
		WithHint("there are %s", strings.Join(names, ", "))
}

// word expands the variables of a word.
func (f *File) word(word string, env map[string]string) (string, error) {
	return expanded(shell.NewLex(f.escape), word, env)
}

// maxWord is the most bytes that a word may have when its variables are expanded.
const maxWord = 1 << 20

// expanded expands the variables of a word. Variables that repeat each other would otherwise grow without an end.
func expanded(lex *shell.Lex, word string, env map[string]string) (string, error) {
	longest := 0
	for _, value := range env {
		longest = max(longest, len(value))
	}
	if len(word)+strings.Count(word, "$")*longest > maxWord {
		return "", cove.Errorf(cove.TooLarge, "a word of the Dockerfile may expand to more than %d bytes", maxWord)
	}
	result, _, err := lex.ProcessWord(word, variables(env))
	return result, err
}

// variables are a set of variables as BuildKit's shell reads it.
type variables map[string]string

// Get implements shell.EnvGetter.
func (v variables) Get(name string) (string, bool) { value, ok := v[name]; return value, ok }

// Keys implements shell.EnvGetter.
func (v variables) Keys() []string {
	return slices.Collect(maps.Keys(v))
}

// invalid gives an error of a Dockerfile its line.
func invalid(of instructions.Command, err error) error {
	var places []parser.Range
	if of != nil {
		places = of.Location()
	} else if at, ok := errors.AsType[*parser.LocationError](err); ok && len(at.Locations) > 0 {
		places = at.Locations[0]
	}
	if len(places) == 0 {
		return cove.Errorf(cove.InvalidArgument, "the Dockerfile: %w", err)
	}
	return cove.Errorf(cove.InvalidArgument, "line %d of the Dockerfile: %w", places[0].Start.Line, err)
}
