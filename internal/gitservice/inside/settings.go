//go:build linux

package inside

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove/internal/gitservice/internal/command"
)

// setting is one line of configuration. The key is in small letters, except what is between its first and last dot.
type setting struct{ key, value string }

// settings are the user's own, the last of a key being the one that counts.
type settings []setting

func (s settings) get(key string) string {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i].key == key {
			return s[i].value
		}
	}
	return ""
}

// list returns the settings that the API accepts.
func (s settings) list() (all [][2]string) {
	for _, kv := range s {
		if command.Harmless(kv.key, kv.value) {
			all = append(all, [2]string{kv.key, kv.value})
		}
	}
	return all
}

// globalFile returns the path of the user's own settings.
func globalFile() string {
	if name := os.Getenv("GIT_CONFIG_GLOBAL"); name != "" {
		return name
	}
	return path.Join(os.Getenv("HOME"), ".gitconfig")
}

// readSettings reads those of the sandbox and of its user. A file that cannot be read says nothing.
func readSettings() settings {
	system := "/etc/gitconfig"
	if name := os.Getenv("GIT_CONFIG_SYSTEM"); name != "" {
		system = name
	}
	xdg := cmp.Or(os.Getenv("XDG_CONFIG_HOME"), path.Join(os.Getenv("HOME"), ".config"))
	var all settings
	for _, name := range []string{system, path.Join(xdg, "git/config"), globalFile()} {
		if text, err := os.ReadFile(name); err == nil && len(text) <= 1<<20 {
			all = append(all, parseSettings(string(text))...)
		}
	}
	return all
}

// parseSettings reads git's configuration syntax. What is wrong is left out.
func parseSettings(text string) (all settings) {
	section := ""
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\\\n", "")
	for l := range strings.SplitSeq(text, "\n") {
		l = strings.TrimSpace(l)
		if rest, ok := strings.CutPrefix(l, "["); ok {
			head, after, ok := strings.Cut(rest, "]")
			if !ok {
				continue
			}
			name, sub, quoted := strings.Cut(head, `"`)
			section = strings.ToLower(strings.TrimSpace(name))
			if quoted {
				section += "." + strings.ReplaceAll(strings.TrimSuffix(sub, `"`), `\`, "")
			}
			l = strings.TrimSpace(after)
		}
		if l == "" || l[0] == '#' || l[0] == ';' || section == "" {
			continue
		}
		key, value, has := strings.Cut(l, "=")
		if value = unquote(strings.TrimSpace(value)); !has {
			value = "true"
		}
		all = append(all, setting{section + "." + strings.ToLower(strings.TrimSpace(key)), value})
	}
	return all
}

// unquote reads a value: quotes keep spaces and signs of comments.
func unquote(s string) string {
	var b strings.Builder
	quoted, space := false, 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '"':
			quoted = !quoted
			continue
		case c == '\\' && i+1 < len(s):
			i++
			switch c = s[i]; c {
			case 'n':
				c = '\n'
			case 't':
				c = '\t'
			}
		case !quoted && (c == '#' || c == ';'):
			return b.String()[:b.Len()-space]
		}
		b.WriteByte(c)
		if space++; quoted || c != ' ' && c != '\t' {
			space = 0
		}
	}
	return b.String()[:b.Len()-space]
}

// expandAliases puts what an alias stands for in its place. None runs a shell.
func (s *session) expandAliases() error {
	seen := map[string]bool{}
	for {
		i := s.verb()
		if i == len(s.args) {
			return nil
		}
		name := s.args[i]
		if slices.ContainsFunc(command.Verbs(), func(v string) bool { return v == name || strings.HasPrefix(v, name+" ") }) {
			return nil
		}
		alias := s.settings.get("alias." + strings.ToLower(name))
		if alias == "" {
			return nil
		}
		if seen[name] {
			return fmt.Errorf("alias loop detected: expansion of '%s' does not terminate", name)
		}
		seen[name] = true
		if alias[0] == '!' {
			return fmt.Errorf("the alias '%s' runs a shell command, which git in this sandbox does not do", name)
		}
		words, err := splitWords(alias)
		if err != nil {
			return fmt.Errorf("bad alias.%s string: %w", name, err)
		}
		s.args = slices.Concat(s.args[:i], words, s.args[i+1:])
	}
}

// splitWords takes a command line apart as git does for aliases.
func splitWords(s string) (words []string, err error) {
	var b strings.Builder
	in, quote := false, byte(0)
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case quote == 0 && (c == ' ' || c == '\t' || c == '\n'):
			if in {
				words = append(words, b.String())
				b.Reset()
			}
			in = false
			continue
		case quote == 0 && (c == '\'' || c == '"'):
			quote, in = c, true
			continue
		case c == quote && quote != 0:
			quote = 0
			continue
		case c == '\\' && quote != '\'':
			if i++; i == len(s) {
				return nil, errors.New("cmdline ends with \\")
			}
			c = s[i]
		}
		in = true
		b.WriteByte(c)
	}
	if quote != 0 {
		return nil, errors.New("unclosed quote")
	}
	if in {
		words = append(words, b.String())
	}
	return words, nil
}

// own does what concerns only the sandbox's own settings: git config --global.
func (s *session) own() (code int, done bool) {
	i := s.verb()
	if s.name() != "config" || !slices.Contains(s.args[i:], "--global") {
		return 0, false
	}
	rest := slices.DeleteFunc(slices.Clone(s.args[i+1:]), func(a string) bool { return a == "--global" })
	switch {
	case len(rest) == 1 && (rest[0] == "--list" || rest[0] == "-l"):
		text, err := os.ReadFile(globalFile())
		if err != nil {
			return fatal("unable to read config file '%s': %v", globalFile(), errors.Unwrap(err)), true
		}
		for _, kv := range parseSettings(string(text)) {
			fmt.Printf("%s=%s\n", kv.key, kv.value)
		}
		return 0, true
	case len(rest) == 2 && rest[0] == "--unset":
		return change(rest[1], nil), true
	case len(rest) == 2 && !strings.HasPrefix(rest[0], "-"):
		return change(rest[0], &rest[1]), true
	case len(rest) == 1 && !strings.HasPrefix(rest[0], "-"), len(rest) == 2 && rest[0] == "--get":
		text, _ := os.ReadFile(globalFile())
		v, ok := parseSettings(string(text)).find(canonical(rest[len(rest)-1]))
		if !ok {
			return 1, true
		}
		fmt.Println(v)
		return 0, true
	}
	return 0, false
}

func (s settings) find(key string) (string, bool) {
	i := slices.IndexFunc(s, func(kv setting) bool { return kv.key == key })
	return s.get(key), i >= 0
}

// canonical is a key as settings have it.
func canonical(key string) string {
	first, last := strings.IndexByte(key, '.'), strings.LastIndexByte(key, '.')
	if first <= 0 || last == len(key)-1 {
		return ""
	}
	return strings.ToLower(key[:first]) + key[first:last] + strings.ToLower(key[last:])
}

// change writes the user's own settings with one set to a value, or without it.
// Comments and order are kept as far as lines of other keys go.
func change(key string, value *string) int {
	name := canonical(key)
	if name == "" || strings.ContainsAny(key, "\n\"\\]") {
		fmt.Fprintf(os.Stderr, "error: key does not contain a section: %s\n", key)
		return 1
	}
	text, err := os.ReadFile(globalFile())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fatal("%v", err)
	}
	var kept []string
	header, found := "", false
	for _, l := range strings.SplitAfter(string(text), "\n") {
		if t := strings.TrimSpace(l); strings.HasPrefix(t, "[") {
			header = t[:strings.IndexByte(t+"]", ']')+1]
		} else if got := parseSettings(header + "\n" + l); len(got) == 1 && got[0].key == name {
			found = true
			continue
		}
		kept = append(kept, l)
	}
	if value == nil && !found {
		return 5
	}
	out := strings.Join(kept, "")
	if value != nil {
		if out != "" && !strings.HasSuffix(out, "\n") {
			out += "\n"
		}
		first, last := strings.IndexByte(name, '.'), strings.LastIndexByte(name, '.')
		section := name[:first]
		if first != last {
			section += ` "` + name[first+1:last] + `"`
		}
		out += "[" + section + "]\n\t" + name[last+1:] + ` = "` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).
			Replace(*value) + "\"\n"
	}
	temporary := globalFile() + ".lock"
	err = os.WriteFile(temporary, []byte(out), 0o644)
	if err == nil {
		err = os.Rename(temporary, globalFile())
	}
	if err != nil {
		return fatal("%v", err)
	}
	return 0
}

// helpFor says whether help is asked for, and with which command.
func (s *session) helpFor() (name string, asked bool) {
	i := s.verb()
	for _, a := range s.args[:i] {
		if a == "--help" || a == "-h" {
			return s.name(), true
		}
	}
	if i == len(s.args) {
		return "", len(s.args) == 0
	}
	rest := s.args[i+1:]
	if s.args[i] == "help" {
		rest = slices.DeleteFunc(slices.Clone(rest), func(a string) bool { return strings.HasPrefix(a, "-") })
		if len(rest) > 1 && slices.Contains(commands(), rest[0]+" "+rest[1]) {
			return rest[0] + " " + rest[1], true
		}
		return strings.Join(rest[:min(1, len(rest))], ""), true
	}
	return s.args[i], len(rest) == 1 && (rest[0] == "-h" && !slices.Contains([]string{"grep", "ls-remote"}, s.args[i]) ||
		rest[0] == "--help")
}

func help(name string) int {
	if name == "" {
		fmt.Println("git in this sandbox works on the repository of /workspace, which is kept outside.\n\nIts commands:")
		for _, v := range commands() {
			fmt.Println("   " + v)
		}
		fmt.Println("\n\"git help COMMAND\" lists the options of one.")
		return 0
	}
	if name == "bisect run" {
		fmt.Println("git bisect run COMMAND [ARGUMENT…] runs a command in this sandbox on each commit to test:\n" +
			"exit code 0 is good, 125 is skip, others below 128 are bad.")
		return 0
	}
	options, ok := command.Options(name)
	if !ok {
		fmt.Printf("git %s is not among the commands of this sandbox; \"git help\" lists them\n", name)
		return 1
	}
	fmt.Printf("git %s takes these options in this sandbox:\n", name)
	for _, o := range options {
		fmt.Println("   " + o)
	}
	for _, v := range commands() {
		if strings.HasPrefix(v, name+" ") {
			fmt.Println("see also: git help " + v)
		}
	}
	return 0
}

// commands lists those of the API, and what is done here of them.
func commands() []string {
	all := append(command.Verbs(), "bisect run")
	slices.Sort(all)
	return all
}
