package agent

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/pattern"
)

// tool is a tool call as it is shown to the user. Agents name their tools and arguments differently; the names here
// are the common ones.
type tool struct {
	name  string
	about string   // what it is given, in a few words
	files []string // that it changes
}

// readTool returns the description of a tool call. It is a pure function and accepts any input.
func readTool(m api.Message) tool {
	t := tool{name: cmp.Or(m.Tool, "a tool")}
	var in map[string]any
	if json.Unmarshal(m.Input, &in) != nil {
		t.about = string(m.Input)
		return t
	}
	switch {
	case t.edit(in), t.patch(in), t.changes(in), t.todos(in):
		return t
	}
	keys := []string{
		"command", "cmd", "pattern", "query", "url", "file_path", "notebook_path", "path", "description", "prompt",
	}
	for _, key := range keys {
		if text := said(in[key]); text != "" {
			t.about = text
			if place := said(in["path"]); key == "pattern" && place != "" {
				t.about += " in " + inWorkspace(place)
			}
			if strings.HasSuffix(key, "path") {
				t.about = inWorkspace(text)
			}
			return t
		}
	}
	if len(in) > 0 {
		t.about = string(m.Input)
	}
	return t
}

// edit is a file that is written, or in which text is replaced.
func (t *tool) edit(in map[string]any) bool {
	file := cmp.Or(said(in["file_path"]), said(in["notebook_path"]), said(in["path"]), said(in["filePath"]))
	if file == "" {
		return false
	}
	added, removed, edits := 0, 0, 0
	one := func(in map[string]any) {
		from, replaced := textOf(in, "old_string", "old_text", "oldString", "old")
		to, written := textOf(in, "new_string", "new_text", "newString", "new_source", "content", "contents", "new")
		if !replaced && !written {
			return
		}
		a, r := changedLines(from, to)
		added, removed, edits = added+a, removed+r, edits+1
	}
	one(in)
	several, _ := in["edits"].([]any)
	for _, e := range several {
		if e, ok := e.(map[string]any); ok {
			one(e)
		}
	}
	if edits == 0 {
		return false
	}
	file = inWorkspace(file)
	t.files, t.about = []string{file}, file+" "+countText(added, removed)
	return true
}

// patch reads a call whose argument is one patch to several files.
func (t *tool) patch(in map[string]any) bool {
	text := ""
	for _, v := range in {
		if s := said(v); strings.Contains(s, "*** Begin Patch") {
			text = s
		}
	}
	if text == "" {
		return false
	}
	added, removed := 0, 0
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		for _, verb := range []string{"*** Add File: ", "*** Update File: ", "*** Delete File: "} {
			if file, ok := strings.CutPrefix(line, verb); ok {
				t.files = append(t.files, inWorkspace(strings.TrimSpace(file)))
			}
		}
		switch {
		case strings.HasPrefix(line, "+"):
			added++
		case strings.HasPrefix(line, "-"):
			removed++
		}
	}
	t.about = strings.Join(t.files, ", ") + " " + countText(added, removed)
	return true
}

// changes is a list of files that are changed.
func (t *tool) changes(in map[string]any) bool {
	list, _ := in["changes"].([]any)
	for _, c := range list {
		if c, ok := c.(map[string]any); ok && said(c["path"]) != "" {
			t.files = append(t.files, inWorkspace(said(c["path"])))
		}
	}
	if byPath, ok := in["changes"].(map[string]any); ok {
		for _, file := range slices.Sorted(maps.Keys(byPath)) {
			t.files = append(t.files, inWorkspace(file))
		}
	}
	t.about = strings.Join(t.files, ", ")
	return len(t.files) > 0
}

// todos is a list of what the agent means to do.
func (t *tool) todos(in map[string]any) bool {
	list, ok := in["todos"].([]any)
	if !ok {
		return false
	}
	done, current := 0, ""
	for _, item := range list {
		item, _ := item.(map[string]any)
		switch said(item["status"]) {
		case "completed":
			done++
		case "in_progress":
			current = said(item["content"])
		}
	}
	t.about = fmt.Sprintf("%d of %d done", done, len(list))
	if current != "" {
		t.about += ", now: " + current
	}
	return true
}

// said is a text, or a list of them as a shell would have it. Of a shell that is given a script it is the script.
func said(v any) string {
	switch v := v.(type) {
	case string:
		if m := wrapped.FindStringSubmatch(v); m != nil {
			return m[1] + m[2]
		}
		return v
	case []any:
		var list []string
		for _, w := range v {
			if w, ok := w.(string); ok {
				list = append(list, w)
			}
		}
		isShell := len(list) == 3 && strings.HasSuffix(list[0], "sh")
		if isShell && strings.HasPrefix(list[1], "-") && strings.HasSuffix(list[1], "c") {
			return list[2]
		}
		for i, w := range list {
			list[i] = ui.ShellWord(w)
		}
		return strings.Join(list, " ")
	}
	return ""
}

// wrapped is a command that a shell is given as its script.
var wrapped = pattern.New(`(?s)^(?:/\S+/)?(?:ba|z|da)?sh -l?c (?:'([^']*)'|"([^"\\$]*)")$`)

// textOf is the first of keys that is a text.
func textOf(in map[string]any, keys ...string) (string, bool) {
	for _, key := range keys {
		if s, ok := in[key].(string); ok {
			return s, true
		}
	}
	return "", false
}

// changedLines counts the lines that differ, apart from those which both texts begin and end with.
func changedLines(from, to string) (added, removed int) {
	a, b := linesOf(from), linesOf(to)
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return len(b), len(a)
}

func linesOf(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

func countText(added, removed int) string {
	if removed == 0 {
		return fmt.Sprintf("(+%d)", added)
	}
	return fmt.Sprintf("(+%d −%d)", added, removed)
}

func inWorkspace(path string) string {
	if rest, ok := strings.CutPrefix(path, cove.Workspace+"/"); ok && rest != "" {
		return rest
	}
	return path
}
