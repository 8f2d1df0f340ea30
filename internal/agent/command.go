package agent

import (
	"cmp"
	"encoding/json"
	"path"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/cove-sandbox/cove"
)

// optionsPlace marks the place of option arguments in a command.
const optionsPlace = "{options}"

// HeadlessCommand returns the command that runs a task to its end. Errors: InvalidArgument for a task without a prompt,
// Unsupported for an option that the agent lacks.
func (a Agent) HeadlessCommand(t Task) (Command, error) {
	if strings.TrimSpace(t.Prompt) == "" {
		return Command{}, cove.Errorf(cove.InvalidArgument, "there is no prompt").WithHint("give %s a task", a.Name)
	}
	if len(a.Headless) == 0 {
		return Command{}, cove.Errorf(cove.Unsupported, "%s takes no tasks: it has a screen only",
			a.Title).WithHint("start it in a terminal, without a prompt")
	}
	if t.Schema != nil && a.Options.Schema == nil {
		t.Prompt += "\n\nAnswer with one JSON document and nothing else, valid by this JSON Schema:\n" + string(t.Schema)
	}
	return a.command(a.Headless, t)
}

// InteractiveCommand returns the command of the agent's own screen, with the task's model, session and instructions.
// Errors: Unsupported when it has none.
func (a Agent) InteractiveCommand(t Task) (Command, error) {
	if len(a.Interactive) == 0 {
		return Command{}, cove.Errorf(cove.Unsupported, "%s has no screen of its own",
			a.Title).WithHint("give it a task: cove %s PROMPT", a.Name)
	}
	return a.command(a.Interactive, Task{Model: t.Model, Session: t.Session, Instructions: t.Instructions, Dir: t.Dir,
		Hooks: t.Hooks, Extras: t.Extras})
}

// WithTokens returns a declaration whose program finds the contents of cove.Tokens in its variables.
func (a Agent) WithTokens() Agent {
	enter := []string{"/bin/sh", "-c", `for f in ` + cove.Tokens +
		`/*; do v=$(cat "$f") || exit; export "${f##*/}=$v"; done; exec "$@"`, "tokens"}
	a.Headless = append(slices.Clip(enter), a.Headless...)
	if len(a.Interactive) > 0 {
		a.Interactive = append(slices.Clip(enter), a.Interactive...)
	}
	return a
}

// command fills a task into a command.
func (a Agent) command(args []string, t Task) (Command, error) {
	c := Command{Env: a.Env, Files: map[string]string{}}
	if len(t.AllowedTools) > 0 {
		t.PermissionMode = cmp.Or(t.PermissionMode, a.ToolsMode)
	}
	words := map[string]string{
		"prompt": t.Prompt, "model": t.Model, "session": t.Session, "instructions": t.Instructions,
		"schema":      string(t.Schema),
		"prompt_file": path.Join(t.Dir, "prompt"), "schema_file": path.Join(t.Dir, "schema.json"),
		"mcp_config_file": path.Join(t.Dir, "mcp.json"), "mcp_config": string(t.MCPConfig),
		"allowed_tools": strings.Join(t.AllowedTools, ","), "disallowed_tools": strings.Join(t.DisallowedTools, ","),
		"permission_mode": t.PermissionMode,
	}
	if t.MCPConfig != nil {
		servers, err := CheckMCPConfig(t.MCPConfig)
		if err != nil {
			return c, err
		}
		words["mcp_servers:toml"] = serversTOML(servers)
	}
	if t.Turns > 0 {
		words["turns"] = strconv.Itoa(t.Turns)
	}
	options, err := a.options(t, words)
	if err != nil {
		return c, err
	}
	at := slices.Index(args, optionsPlace)
	if at < 0 {
		args = append(slices.Clone(args), optionsPlace)
		at = len(args) - 1
	}
	c.Args = slices.Concat(fill(args[:at], words), options, fill(args[at+1:], words))
	if a.Prompt == ByStdin {
		c.Stdin = t.Prompt
	}
	for name, content := range map[string]string{"prompt_file": t.Prompt, "schema_file": string(t.Schema),
		"mcp_config_file": string(t.MCPConfig)} {
		if uses(slices.Concat(args, a.Options.Schema, a.Options.MCPConfig), name) && content != "" {
			c.Files[words[name]] = content
		}
	}
	return c, nil
}

// options returns the arguments for a task's options.
func (a Agent) options(t Task, words map[string]string) ([]string, error) {
	var all []string
	if t.PermissionMode == "" {
		all = slices.Clone(a.Unasked)
	} else if len(a.PermissionModes) > 0 && !slices.Contains(a.PermissionModes, t.PermissionMode) {
		return nil, cove.Errorf(cove.InvalidArgument, "%s has no permission mode %.40q", a.Title, t.PermissionMode).
			WithHint("it has %s", strings.Join(a.PermissionModes, ", "))
	}
	if t.Hooks {
		all = append(all, a.Hooked...)
	}
	for _, o := range []struct {
		wish string
		said bool
		args []string
	}{
		{"a choice of the model", t.Model != "", a.Options.Model},
		{"a bound of turns", t.Turns > 0, a.Options.Turns},
		{"instructions of its own", t.Instructions != "", a.Options.Instructions},
		{"", t.Schema != nil, a.Options.Schema}, // otherwise the prompt asks for it
		{"a list of allowed tools", len(t.AllowedTools) > 0, a.Options.AllowedTools},
		{"a list of disallowed tools", len(t.DisallowedTools) > 0, a.Options.DisallowedTools},
		{"MCP servers of a task", t.MCPConfig != nil, a.Options.MCPConfig},
		{"a permission mode", t.PermissionMode != "", a.Options.PermissionMode},
		{"a conversation that goes on", t.Session != "", a.Options.Resume},
	} {
		switch {
		case !o.said:
		case len(o.args) == 0 && o.wish != "":
			return nil, cove.Errorf(cove.Unsupported, "%s has no way for %s", a.Title,
				o.wish).WithHint("leave it out, or use another agent")
		default:
			all = append(all, fill(o.args, words)...)
		}
	}
	return all, nil
}

// fill replaces names by their values. {NAME:json} is the value as a JSON string.
func fill(args []string, words map[string]string) []string {
	var pairs []string
	for name, word := range words {
		quoted, _ := json.Marshal(word) // a string always encodes
		pairs = append(pairs, "{"+name+"}", word, "{"+name+":json}", string(quoted))
	}
	r := strings.NewReplacer(pairs...)
	filled := make([]string, len(args))
	for i, a := range args {
		filled[i] = r.Replace(a)
	}
	return filled
}

func uses(args []string, name string) bool {
	return slices.ContainsFunc(args, func(a string) bool { return strings.Contains(a, "{"+name) })
}

// Home returns the files that the home must contain before the agent's first start: paths below the home. Errors:
// InvalidArgument.
func (a Agent) Home(p Place) ([]File, error) {
	var files []File
	for _, f := range a.Files {
		t, err := template.New(f.Path).Funcs(functions).Parse(f.Content)
		var content strings.Builder
		if err == nil {
			err = t.Execute(&content, p)
		}
		if err != nil {
			return nil, cove.Errorf(cove.InvalidArgument, "the file %s of the agent %s cannot be made: %w", f.Path, a.Name, err)
		}
		files = append(files, File{Path: f.Path, Content: content.String()})
	}
	return files, nil
}

// functions are the functions of file templates: quote encodes a text for JSON and TOML.
var functions = template.FuncMap{"quote": func(s string) string {
	quoted, _ := json.Marshal(s) // a string always encodes
	return string(quoted)
}}
