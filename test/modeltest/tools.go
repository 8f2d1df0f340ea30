package modeltest

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
)

// tool is one that a request offers.
type tool struct {
	name      string
	namespace string // of OpenAI's: what it is called by together with its name
	freeform  bool   // takes text instead of JSON
	schema    schema
}

type schema struct {
	Properties map[string]property `json:"properties"`
	Required   []string            `json:"required"`
}

type property struct {
	Type any   `json:"type"` // a string, or a list of them
	Enum []any `json:"enum"`
	schema
}

func (p property) is(kind string) bool {
	switch t := p.Type.(type) {
	case string:
		return strings.EqualFold(t, kind) // Gemini has them in capitals
	case []any:
		return slices.Contains(t, any(kind))
	}
	return false
}

// call is one of a tool.
type call struct {
	tool  tool
	input json.RawMessage // of a tool with a schema
	text  string          // of a freeform one
}

// arguments is what it is called with, as one text.
func (c call) arguments() string {
	if c.tool.freeform {
		return c.text
	}
	return string(c.input)
}

// plain is a name as it is compared: agents write theirs in many ways.
func plain(name string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "", ".", "").Replace(name))
}

// Names of tools, and of what they take, that stand for a word of a script.
var (
	shells  = []string{"bash", "execcommand", "shell", "runshellcommand", "shellcommand", "runcommand"}
	readers = []string{"read", "readfile"}
	writers = []string{"write", "writefile", "createfile"}
	editors = []string{"edit", "replace", "editfile", "strreplace"}

	parameters = map[string][]string{
		"command": {"command", "cmd", "script"},
		"path":    {"filepath", "path", "file", "absolutepath", "filename"},
		"content": {"content", "contents", "text"},
		"old":     {"oldstring", "old", "oldtext", "oldstr"},
		"new":     {"newstring", "new", "newtext", "newstr"},
	}
)

func find(tools []tool, names []string) (tool, bool) {
	for _, name := range names {
		if i := slices.IndexFunc(tools, func(t tool) bool { return !t.freeform && plain(t.name) == name }); i >= 0 {
			return tools[i], true
		}
	}
	return tool{}, false
}

// choose makes a call of the tool that there is for an action.
func (a Action) choose(tools []tool) (call, error) {
	if a.Tool != nil {
		return a.Tool.choose(tools)
	}
	if c, ok := a.direct(tools); ok {
		return c, nil
	}
	if c, ok := a.scripted(tools); ok {
		return c, nil
	}
	command := a.command(tools)
	if t, ok := find(tools, shells); ok {
		return t.fill(map[string]string{"command": command}, "Run a command"), nil
	}
	var there []string
	for _, t := range tools {
		there = append(there, t.name)
	}
	return call{}, fmt.Errorf("there is no tool for %q among %q", command, there)
}

func (t *Tool) choose(tools []tool) (call, error) {
	i := slices.IndexFunc(tools, func(one tool) bool { return one.name == t.Name })
	if i < 0 {
		return call{tool: tool{name: t.Name}, input: encode(t.Input)}, nil // as models do, who call what is not there
	}
	if tools[i].freeform {
		text, ok := t.Input["text"].(string)
		if !ok {
			return call{}, fmt.Errorf("the tool %q takes text: input has text alone", t.Name)
		}
		return call{tool: tools[i], text: text}, nil
	}
	return call{tool: tools[i], input: encode(t.Input)}, nil
}

// direct calls the tool that is made for an action.
func (a Action) direct(tools []tool) (call, bool) {
	for _, one := range []struct {
		is    bool
		names []string
		says  map[string]string
	}{
		{a.Shell != "", shells, map[string]string{"command": a.Shell}},
		{a.Read != "", readers, map[string]string{"path": a.Read}},
	} {
		if t, ok := find(tools, one.names); one.is && ok {
			return t.fill(one.says, "Run a command"), true
		}
	}
	if a.Write != nil {
		if t, ok := find(tools, writers); ok {
			return t.fill(map[string]string{"path": a.Write.Path, "content": a.Write.Content}, "Write a file"), true
		}
	}
	if a.Edit != nil {
		if t, ok := find(tools, editors); ok {
			return t.fill(map[string]string{"path": a.Edit.Path, "old": a.Edit.Old, "new": a.Edit.New}, "Edit a file"), true
		}
	}
	return call{}, false
}

// scripted is for Codex with models that call tools from JavaScript.
func (a Action) scripted(tools []tool) (call, bool) {
	i := slices.IndexFunc(tools, func(t tool) bool { return t.freeform && t.name == "exec" })
	if i < 0 {
		return call{}, false
	}
	if patch := a.patch(); patch != "" {
		return call{tool: tools[i], text: fmt.Sprintf("text(await tools.apply_patch(%s));", encode(patch))}, true
	}
	return call{tool: tools[i], text: fmt.Sprintf("text(await tools.exec_command({cmd: %s}));",
		encode(a.command(tools)))}, true
}

// patch is a change of a file in the form of Codex's apply_patch.
func (a Action) patch() string {
	lines := func(mark, text string) string {
		var b strings.Builder
		for line := range strings.Lines(text) {
			b.WriteString(mark + strings.TrimSuffix(line, "\n") + "\n")
		}
		return b.String()
	}
	switch {
	case a.Write != nil:
		return "*** Begin Patch\n*** Add File: " + a.Write.Path + "\n" + lines("+", a.Write.Content) + "*** End Patch\n"
	case a.Edit != nil:
		return "*** Begin Patch\n*** Update File: " + a.Edit.Path + "\n@@\n" +
			lines("-", a.Edit.Old) + lines("+", a.Edit.New) + "*** End Patch\n"
	}
	return ""
}

// command does an action with a shell.
func (a Action) command(tools []tool) string {
	_, codex := find(tools, []string{"execcommand"})
	switch {
	case a.Shell != "":
		return a.Shell
	case a.Read != "":
		return "cat " + quote(a.Read)
	case codex: // which has the command apply_patch
		return "apply_patch <<'END_OF_PATCH'\n" + a.patch() + "END_OF_PATCH\n"
	case a.Write != nil:
		return fmt.Sprintf("mkdir -p %s && printf %%s %s > %s", quote(path.Dir(a.Write.Path)), quote(a.Write.Content),
			quote(a.Write.Path))
	}
	return fmt.Sprintf("OLD=%s NEW=%s perl -0pi -e 's/\\Q$ENV{OLD}\\E/$ENV{NEW}/' %s", quote(a.Edit.Old),
		quote(a.Edit.New), quote(a.Edit.Path))
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// fill makes a call of what a script says, by what the tool calls it. What the tool wants beside that it gets empty.
func (t tool) fill(says map[string]string, description string) call {
	input := map[string]any{}
	for word, value := range says {
		for name, p := range t.schema.Properties {
			if !slices.Contains(parameters[word], plain(name)) {
				continue
			}
			input[name] = value
			if p.is("array") {
				input[name] = []string{"bash", "-lc", value}
			}
		}
	}
	for _, name := range t.schema.Required {
		if _, ok := input[name]; ok {
			continue
		}
		if input[name] = t.schema.Properties[name].empty(); plain(name) == "description" {
			input[name] = description
		}
	}
	return call{tool: t, input: encode(input)}
}

// empty is the least that a property may be.
func (p property) empty() any {
	switch {
	case len(p.Enum) > 0:
		return p.Enum[0]
	case p.is("boolean"):
		return false
	case p.is("integer"), p.is("number"):
		return 0
	case p.is("array"):
		return []any{}
	case p.is("object"):
		whole := map[string]any{}
		for _, name := range p.Required {
			whole[name] = p.Properties[name].empty()
		}
		return whole
	}
	return ""
}

// encode makes JSON of what can be nothing else.
func encode(v any) json.RawMessage {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return json.RawMessage(strings.TrimSuffix(b.String(), "\n"))
}
