package repos

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cove-sandbox/cove/internal/hostgit"
)

// workingForms returns the contents of a checkout's files that git writes in another form than it stores them, by the
// attributes of the checkout. Filters do not run: no configuration names any.
func workingForms(ctx context.Context, s *Store, git, dir string, changes []Change) (map[placed][]byte, error) {
	var paths strings.Builder
	for _, c := range changes {
		if isFile(c.Old) || isFile(c.New) {
			paths.WriteString(c.Path + "\x00")
		}
	}
	if paths.Len() == 0 {
		return nil, nil
	}
	out, err := s.git(ctx, nil, hostgit.Run{Dir: git, WorkTree: dir, Own: true, Command: []string{"check-attr"},
		Flags: []string{"-z", "--stdin", "--all"}, Stdin: strings.NewReader(paths.String())})
	if err != nil {
		return nil, err
	}
	aside, err := os.MkdirTemp(git, "forms-")
	if err != nil {
		return nil, storageFull("look at the attributes of files", err)
	}
	defer os.RemoveAll(aside)
	forms, attributes := map[placed][]byte{}, converting(string(out))
	room := int64(maxApplied)
	for i, c := range changes {
		line, ok := attributes[c.Path]
		if !ok {
			continue
		}
		file := filepath.Join(aside, strconv.Itoa(i))
		if err := writeFile(file, "* "+line+"\n"); err != nil {
			return nil, err
		}
		for _, e := range []Entry{c.Old, c.New} {
			if !isFile(e) {
				continue
			}
			text, err := s.git(ctx, nil, hostgit.Run{Dir: git, Command: []string{"cat-file"},
				Flags: []string{"--filters", "--path=file"}, Args: []string{e.ID}, MaxOutput: max(room, 1),
				Settings: []hostgit.Setting{{Key: "core.attributesFile", Value: file}}})
			if err != nil {
				return nil, err
			}
			room -= int64(len(text))
			forms[placed{c.Path, e.ID}] = text
		}
	}
	return forms, nil
}

// converting returns the attributes of the paths whose files git writes in another form than it stores them, from the
// output of "git check-attr -z": path, attribute and value of each. It is pure.
func converting(out string) map[string]string {
	attributes, paths := map[string]string{}, map[string]string{}
	fields := strings.Split(out, "\x00")
	for ; len(fields) >= 3; fields = fields[3:] {
		path, name, value := fields[0], fields[1], fields[2]
		if !slices.Contains([]string{"text", "crlf", "eol", "ident", "working-tree-encoding"}, name) {
			continue
		}
		other := name == "eol" && value == "crlf" || name == "ident" && value == "set" ||
			name == "working-tree-encoding" && value != "set" && value != "unset"
		switch value {
		case "set":
			attributes[path] += " " + name
		case "unset":
			attributes[path] += " -" + name
		default:
			attributes[path] += " " + name + "=" + value
		}
		if other {
			paths[path] = ""
		}
	}
	for path := range paths {
		paths[path] = attributes[path][1:]
	}
	return paths
}
