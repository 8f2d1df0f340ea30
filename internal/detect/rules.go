package detect

import (
	_ "embed"
	"strings"
)

//go:embed rules.txt
var rulesText string

// Rules returns the table, the gravest first.
func Rules() []Rule {
	var all []Rule
	for line := range strings.Lines(rulesText) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '\t':
			word, value, _ := strings.Cut(line[1:], " ")
			all[len(all)-1].set(word, strings.TrimLeft(value, " "))
		default:
			f := strings.SplitN(line, " ", 3)
			all = append(all, Rule{Severity: Severity(f[0]), ID: f[1], Detail: f[2]})
		}
	}
	return all
}

// set takes a line of a rule.
func (r *Rule) set(word, value string) {
	alternative := func(pattern string) {
		if r.Pattern != "" {
			r.Pattern += "|"
		}
		r.Pattern += pattern
	}
	switch word {
	case "near":
		r.Literals = append(r.Literals, strings.Split(strings.Trim(value, `"`), `", "`)...)
	case "match":
		alternative(value)
	case "writes":
		alternative(writesTo(value))
	case "+":
		r.Pattern += value
	default:
		panic("detect: rules.txt: " + word)
	}
}

// Context of a path that is written: a redirection, tee or dd before it, or a call before it with a writing mode after
// it.
const (
	shellWrite = `(?:>{1,2}\s*|\btee\s+(?:-a\s+)?|\bof=)["']?`
	callWrite  = `["']\s*,\s*(?:mode\s*=\s*)?(?:["'][^"'\n]*[wa+]|[^)\n]*O_(?:WRONLY|RDWR))`
	callName   = `\b(?:open\w*|write_?file\w*|File\.(?:write|open)|Path)\s*\(\s*`
)

// writesTo matches a write to a path that ends in the given expression.
func writesTo(path string) string {
	return shellWrite + `[^\s"'|;&]*` + path + `\b` +
		`|` + callName + `[furb]{0,2}["'][^"'\n]*` + path + callWrite +
		`|(?i:\bwrite_?file\w*|\bFile\.write)\s*\(\s*["'][^"'\n]*` + path + `["']`
}
