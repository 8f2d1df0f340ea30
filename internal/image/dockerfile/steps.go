package dockerfile

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"

	"github.com/cove-sandbox/cove"
)

// DefaultPath is the PATH of a RUN whose image states none.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Steps returns the steps of a stage over the configuration of its base, whose ONBUILD triggers come first. args are
// the arguments of the stage that it begins with; result are its own, for stages that begin with it. It expands the
// stage's words in place: it may be called once for each stage. Errors: InvalidArgument, Unsupported.
func (f *File) Steps(i int, base Config, args []string) (steps []Step, config Config, result []string, err error) {
	s := &stage{file: f, number: i, config: clone(base), env: map[string]string{}, args: slices.Clone(args)}
	for _, kv := range append(slices.Clone(base.Env), args...) {
		s.set(kv)
	}
	if s.env["PATH"] == "" {
		s.env["PATH"] = DefaultPath
		s.config.Env = append(s.config.Env, "PATH="+DefaultPath)
	}
	triggers, err := parseTriggers(base.OnBuild)
	if err != nil {
		return nil, config, nil, err
	}
	s.config.OnBuild = nil
	for _, c := range append(triggers, f.stages[i].Commands...) {
		step, err := s.step(c)
		if err != nil {
			if _, own := err.(*cove.Error); own {
				return nil, config, nil, err
			}
			return nil, config, nil, invalid(c, err)
		}
		step.Config = clone(s.config)
		steps = append(steps, step)
	}
	return steps, s.config, s.args, nil
}

// clone copies a configuration, as far as instructions change it.
func clone(c Config) Config {
	c.Env, c.OnBuild = slices.Clone(c.Env), slices.Clone(c.OnBuild)
	c.Labels, c.Volumes, c.ExposedPorts = maps.Clone(c.Labels), maps.Clone(c.Volumes), maps.Clone(c.ExposedPorts)
	return c
}

func parseTriggers(all []string) (commands []instructions.Command, err error) {
	for _, text := range all {
		parsed, err := parser.Parse(strings.NewReader(text))
		if err != nil || len(parsed.AST.Children) != 1 {
			return nil, cove.Errorf(cove.InvalidArgument, "the trigger %.200q of the base image cannot be read", text)
		}
		c, err := instructions.ParseCommand(parsed.AST.Children[0])
		if err != nil {
			return nil, cove.Errorf(cove.InvalidArgument, "the trigger %.200q of the base image: %w", text, err)
		}
		commands = append(commands, c)
	}
	return commands, nil
}

// stage is a stage while its instructions are read.
type stage struct {
	file   *File
	number int
	config Config
	env    map[string]string // what words and commands see: ENV and ARG
	args   []string          // ARG alone, KEY=VALUE, in their order
	cmdSet bool              // CMD was in this stage
}

func (s *stage) set(kv string) {
	if name, value, ok := strings.Cut(kv, "="); ok {
		s.env[name] = value
	}
}

// step reads one instruction, and applies it to the configuration.
func (s *stage) step(c instructions.Command) (Step, error) {
	if err := s.expand(c); err != nil {
		return Step{}, err
	}
	step := Step{Text: oneLine(fmt.Sprint(c))}
	if at := c.Location(); len(at) > 0 {
		step.Line = at[0].Start.Line
	}
	var err error
	switch c := c.(type) {
	case *instructions.RunCommand:
		err = s.run(c, &step)
	case *instructions.CopyCommand:
		err = s.copy(c, &step)
	case *instructions.AddCommand:
		err = s.add(c, &step)
	case *instructions.WorkdirCommand:
		dir := path.Join("/", s.config.WorkingDir, c.Path)
		if path.IsAbs(c.Path) {
			dir = path.Clean(c.Path)
		}
		s.config.WorkingDir, step.History = dir, "WORKDIR "+dir
		if dir != "/" {
			step.Dir = dir
		}
	default:
		step.History, err = s.configure(c)
	}
	return step, err
}

// expand expands the words of an instruction. Those of ARG are left to arg, which may not need the default.
func (s *stage) expand(c instructions.Command) error {
	if _, ok := c.(*instructions.ArgCommand); ok {
		return nil
	}
	if e, ok := c.(instructions.SupportsSingleWordExpansion); ok {
		if err := e.Expand(func(word string) (string, error) { return s.file.word(word, s.env) }); err != nil {
			return err
		}
	}
	if e, ok := c.(instructions.SupportsSingleWordExpansionRaw); ok {
		return e.ExpandRaw(func(text string) (string, error) {
			lex := shell.NewLex(s.file.escape)
			lex.SkipProcessQuotes = true
			return expanded(lex, text, s.env)
		})
	}
	return nil
}

// configure applies an instruction that changes no file, and returns its line of the history.
func (s *stage) configure(c instructions.Command) (string, error) {
	switch c := c.(type) {
	case *instructions.EnvCommand:
		text := "ENV"
		for _, kv := range c.Env {
			text += " " + kv.String()
			s.set(kv.Key + "=" + kv.Value)
			s.config.Env = replaced(s.config.Env, kv.Key, kv.Value)
		}
		return text, nil
	case *instructions.ArgCommand:
		return s.arg(c)
	case *instructions.LabelCommand:
		if s.config.Labels == nil {
			s.config.Labels = map[string]string{}
		}
		text := "LABEL"
		for _, kv := range c.Labels {
			s.config.Labels[kv.Key] = kv.Value
			text += " " + kv.String()
		}
		return text, nil
	case *instructions.CmdCommand:
		s.config.Cmd, s.cmdSet = s.shell(c.ShellDependantCmdLine), true
		return fmt.Sprintf("CMD %q", s.config.Cmd), nil
	case *instructions.EntrypointCommand:
		if s.config.Entrypoint = s.shell(c.ShellDependantCmdLine); !s.cmdSet {
			s.config.Cmd = nil
		}
		return fmt.Sprintf("ENTRYPOINT %q", s.config.Entrypoint), nil
	case *instructions.HealthCheckCommand:
		s.config.Healthcheck = &v1.HealthConfig{Test: c.Health.Test, Interval: c.Health.Interval,
			Timeout: c.Health.Timeout, StartPeriod: c.Health.StartPeriod, Retries: c.Health.Retries}
		return fmt.Sprintf("HEALTHCHECK %+v", *s.config.Healthcheck), nil
	case *instructions.ExposeCommand:
		return s.expose(c)
	case *instructions.UserCommand:
		s.config.User = c.User
		return "USER " + c.User, nil
	case *instructions.VolumeCommand:
		if s.config.Volumes == nil {
			s.config.Volumes = map[string]struct{}{}
		}
		for _, v := range c.Volumes {
			s.config.Volumes[v] = struct{}{}
		}
		return fmt.Sprintf("VOLUME %v", c.Volumes), nil
	case *instructions.StopSignalCommand:
		s.config.StopSignal = c.Signal
		return "STOPSIGNAL " + c.Signal, nil
	case *instructions.ShellCommand:
		s.config.Shell = c.Shell
		return fmt.Sprintf("SHELL %v", c.Shell), nil
	case *instructions.OnbuildCommand:
		s.config.OnBuild = append(s.config.OnBuild, c.Expression)
		return "ONBUILD " + c.Expression, nil
	case *instructions.MaintainerCommand:
		return "MAINTAINER " + c.Maintainer, nil
	}
	return "", cove.Errorf(cove.Unsupported, "the instruction %s of a Dockerfile is not supported", c.Name())
}

// arg applies ARG: a value of --build-arg, else its default, else one from before the first FROM.
func (s *stage) arg(c *instructions.ArgCommand) (string, error) {
	text := "ARG"
	for _, kv := range c.Args {
		name, err := s.file.word(kv.Key, s.env)
		if err != nil {
			return "", err
		}
		value, ok := s.file.o.Args[name]
		switch {
		case ok:
		case kv.Value != nil:
			ok = true
			if value, err = s.file.word(*kv.Value, s.env); err != nil {
				return "", err
			}
		default:
			value, ok = s.file.global[name]
		}
		text += " " + name
		if ok {
			text += "=" + value
			s.set(name + "=" + value)
			s.args = replaced(s.args, name, value)
		}
	}
	return text, nil
}

// maxPorts is the most ports of an image.
const maxPorts = 4096

// expose applies EXPOSE: PORT[-PORT][/PROTOCOL].
func (s *stage) expose(c *instructions.ExposeCommand) (string, error) {
	if s.config.ExposedPorts == nil {
		s.config.ExposedPorts = map[string]struct{}{}
	}
	var all []string
	for _, word := range c.Ports {
		words, err := shell.NewLex(s.file.escape).ProcessWords(word, variables(s.env))
		if err != nil {
			return "", err
		}
		for _, w := range words {
			ports, err := portsOf(w)
			if err != nil {
				return "", err
			}
			if all = append(all, ports...); len(all)+len(s.config.ExposedPorts) > maxPorts {
				return "", cove.Errorf(cove.TooLarge, "more than %d ports are exposed", maxPorts)
			}
		}
	}
	for _, p := range all {
		s.config.ExposedPorts[p] = struct{}{}
	}
	return fmt.Sprintf("EXPOSE %v", all), nil
}

func portsOf(word string) (all []string, err error) {
	ports, protocol, ok := strings.Cut(word, "/")
	if protocol = strings.ToLower(protocol); !ok {
		protocol = "tcp"
	}
	first, last, ranged := strings.Cut(ports[strings.LastIndexByte(ports, ':')+1:], "-")
	if !ranged {
		last = first
	}
	from, err := strconv.ParseUint(first, 10, 16)
	to, err2 := strconv.ParseUint(last, 10, 16)
	known := protocol == "tcp" || protocol == "udp" || protocol == "sctp"
	if err != nil || err2 != nil || to < from || !known {
		return nil, fmt.Errorf("%.80q is not a port", word)
	}
	for p := from; p <= to; p++ {
		all = append(all, fmt.Sprintf("%d/%s", p, protocol))
	}
	return all, nil
}

// shell returns a command line, by the stage's shell where it is one of a shell.
func (s *stage) shell(c instructions.ShellDependantCmdLine) []string {
	if !c.PrependShell {
		return c.CmdLine
	}
	with := s.config.Shell
	if len(with) == 0 {
		with = []string{"/bin/sh", "-c"}
	}
	return append(slices.Clone(with), strings.Join(c.CmdLine, " "))
}

// replaced sets a variable in a list of KEY=VALUE.
func replaced(env []string, name, value string) []string {
	for i, kv := range env {
		if k, _, _ := strings.Cut(kv, "="); k == name {
			env[i] = name + "=" + value
			return env
		}
	}
	return append(env, name+"="+value)
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
