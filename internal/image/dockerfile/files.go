package dockerfile

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"

	"github.com/cove-sandbox/cove"
)

func unsupported(what, instead string) error {
	return cove.Errorf(cove.Unsupported, "%s is not supported in a Dockerfile", what).WithHint("%s", instead)
}

// run reads a RUN.
func (s *stage) run(c *instructions.RunCommand, step *Step) error {
	r := &Run{Dir: "/" + strings.TrimPrefix(s.config.WorkingDir, "/"), User: s.config.User}
	if instructions.GetSecurity(c) != instructions.SecuritySandbox {
		return unsupported("RUN --security=insecure", "a step is root in its own sandbox, and an unprivileged user outside")
	}
	if len(instructions.GetDevices(c)) > 0 {
		return unsupported("RUN --device", "sandboxes have no devices of the host")
	}
	switch n := instructions.GetNetwork(c); n {
	case instructions.NetworkNone:
		r.Offline = true
	case instructions.NetworkHost:
		return unsupported("RUN --network=host", "say with --allow or --preset what the build may reach")
	}
	for _, m := range instructions.GetMounts(c) {
		mount, err := s.mount(m)
		if err != nil {
			return err
		}
		r.Mounts = append(r.Mounts, mount)
	}
	if err := s.command(c, r); err != nil {
		return err
	}
	for name, value := range s.env {
		r.Env = append(r.Env, name+"="+value)
	}
	slices.Sort(r.Env)
	step.Run = r
	step.History = strings.Join(append(s.used(), append([]string{"RUN"}, r.Args...)...), " ")
	return nil
}

// used are the stage's arguments, as the history of a RUN states them.
func (s *stage) used() []string {
	if len(s.args) == 0 {
		return nil
	}
	return append([]string{fmt.Sprintf("|%d", len(s.args))}, s.args...)
}

// command sets what a RUN runs. A heredoc is the command itself, or an input of it, which the shell reads.
func (s *stage) command(c *instructions.RunCommand, r *Run) error {
	line := c.ShellDependantCmdLine
	if len(line.Files) == 0 {
		r.Args = s.shell(line)
		return nil
	}
	if len(line.CmdLine) != 1 || !line.PrependShell {
		return fmt.Errorf("a heredoc needs RUN in its shell form")
	}
	first := line.Files[0]
	data := first.Data
	if first.Chomp {
		data = parser.ChompHeredocContent(data)
	}
	whole, err := parser.ParseHeredoc(line.CmdLine[0])
	switch {
	case err == nil && whole != nil && strings.HasPrefix(first.Data, "#!"):
		if !cleanName(first.Name) {
			return fmt.Errorf("the heredoc %.80q has no name of a file", first.Name)
		}
		r.Args, r.Script = []string{path.Join(ScriptDir, first.Name)}, data
		return nil
	case err == nil && whole != nil:
		line.CmdLine = []string{data}
	default:
		text := line.CmdLine[0]
		for _, f := range line.Files {
			text += "\n" + f.Data + f.Name
		}
		line.CmdLine = []string{text}
	}
	r.Args = s.shell(line)
	return nil
}

// ownPrefix begins the ids of caches that no Dockerfile can name.
const ownPrefix = "\x00"

// OwnCache returns the id of a cache that no Dockerfile can name.
func OwnCache(name string) string { return ownPrefix + name }

func cleanName(name string) bool {
	return path.Base(name) == name && name != "." && name != ".." && name != "/"
}

// mount reads a mount of a RUN.
func (s *stage) mount(m *instructions.Mount) (Mount, error) {
	r := Mount{Kind: MountKind(m.Type), From: Source{Stage: -1}, Path: m.Source, ReadOnly: m.ReadOnly, ID: m.CacheID,
		Required: m.Required, Size: m.SizeLimit}
	if m.From != "" {
		r.From = s.file.source(s.number, m.From)
	}
	if m.UID != nil {
		r.UID = int(*m.UID)
	}
	if m.GID != nil {
		r.GID = int(*m.GID)
	}
	if r.Target = m.Target; r.Target != "" && !path.IsAbs(r.Target) {
		r.Target = path.Join("/", s.config.WorkingDir, r.Target)
	}
	switch r.Kind {
	case MountBind, MountTmpfs:
		if r.Target == "" || path.Clean(r.Target) == "/" {
			return r, fmt.Errorf("a %s mount needs a target below /", r.Kind)
		}
	case MountCache:
		if r.Target == "" || path.Clean(r.Target) == "/" {
			return r, fmt.Errorf("a cache mount needs a target below /")
		}
		r.Mode = 0o755
		if m.Mode != nil {
			r.Mode = uint32(*m.Mode)
		}
		if r.ID == "" {
			r.ID = path.Clean(r.Target)
		}
		if strings.HasPrefix(r.ID, ownPrefix) {
			return r, fmt.Errorf("the id %q of a cache begins with a NUL", r.ID)
		}
		r.Alone = m.CacheSharing == instructions.MountSharingLocked || m.CacheSharing == instructions.MountSharingPrivate
	case MountSecret:
		s.secret(m, &r)
	default:
		return r, unsupported("RUN --mount=type="+string(m.Type),
			"give the step what it needs by --secret, or a credential that the gateway sets")
	}
	if r.Target != "" {
		r.Target = path.Clean(r.Target)
	}
	return r, nil
}

// secret reads the parts of a secret, each of which stands for others that are left out.
func (s *stage) secret(m *instructions.Mount, r *Mount) {
	if r.ID == "" {
		r.ID = m.Source
	}
	if r.ID == "" {
		r.ID = path.Base(m.Target)
	}
	if m.Env != nil {
		if r.Env = *m.Env; r.Env == "" {
			r.Env = r.ID
		}
	}
	if r.File = r.Target != "" || m.Env == nil; r.File && r.Target == "" {
		r.Target = "/run/secrets/" + path.Base(r.ID)
	}
	r.Mode = 0o400
	if m.Mode != nil {
		r.Mode = uint32(*m.Mode)
	}
}

func (s *stage) copy(c *instructions.CopyCommand, step *Step) error {
	from := Source{Stage: -1}
	if c.From != "" {
		from = s.file.source(s.number, c.From)
	}
	step.Copy = &Copy{From: from, Chown: c.Chown, Chmod: c.Chmod, Exclude: c.ExcludePatterns, Parents: c.Parents}
	if err := s.files(c.SourcesAndDest, step.Copy); err != nil {
		return err
	}
	for _, src := range step.Copy.Sources {
		if isURL(src) {
			return fmt.Errorf("COPY takes no URL: use ADD")
		}
	}
	step.History = history("COPY", step.Copy, c.DestPath)
	return nil
}

func (s *stage) add(c *instructions.AddCommand, step *Step) error {
	step.Copy = &Copy{Add: true, From: Source{Stage: -1}, Chown: c.Chown, Chmod: c.Chmod, Exclude: c.ExcludePatterns,
		Checksum: c.Checksum, Unpack: c.Unpack}
	if c.Checksum != "" && (len(c.SourcePaths) != 1 || !isURL(c.SourcePaths[0])) {
		return fmt.Errorf("--checksum is for one URL")
	}
	step.History = history("ADD", step.Copy, c.DestPath)
	return s.files(c.SourcesAndDest, step.Copy)
}

// files reads what is copied, and where to.
func (s *stage) files(from instructions.SourcesAndDest, c *Copy) error {
	c.Sources = from.SourcePaths
	for _, f := range from.SourceContents {
		if !cleanName(path.Clean(f.Path)) {
			return fmt.Errorf("the heredoc %.80q has no name of a file", f.Path)
		}
		c.Inline = append(c.Inline, Inline{Name: path.Clean(f.Path), Data: f.Data})
	}
	dest := from.DestPath
	directory := dest == "" || dest == "." || strings.HasSuffix(dest, "/") || strings.HasSuffix(dest, "/.")
	if !path.IsAbs(dest) {
		dest = path.Join("/", s.config.WorkingDir, dest)
	}
	if c.Dest = path.Clean(dest); directory && c.Dest != "/" {
		c.Dest += "/"
	}
	return nil
}

// history is the line of a COPY or ADD in the history.
func history(word string, c *Copy, dest string) string {
	parts := []string{word}
	if c.Chown != "" {
		parts = append(parts, "--chown="+c.Chown)
	}
	if c.Chmod != "" {
		parts = append(parts, "--chmod="+c.Chmod)
	}
	parts = append(parts, c.Sources...)
	for _, f := range c.Inline {
		parts = append(parts, "<<"+f.Name)
	}
	return strings.Join(append(parts, dest), " ")
}

// Remote reports whether a source of ADD is elsewhere.
func Remote(source string) bool {
	return isURL(source) || strings.HasPrefix(source, "git@") || strings.HasPrefix(source, "git://") ||
		strings.HasPrefix(source, "ssh://")
}

func isURL(source string) bool {
	return strings.HasPrefix(source, "http://") || strings.HasPrefix(source, "https://")
}
