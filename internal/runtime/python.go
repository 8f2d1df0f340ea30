package runtime

import (
	"bytes"
	"regexp"
	"strings"
)

var python = Runtime{
	Name: "python", Aliases: []string{"python3", "py"}, File: "main.py",
	// -u: output is seen when it is written, not when a buffer is full.
	Command: []string{"python3", "-u", "main.py"}, Probe: []string{"python3", "--version"},
	Env:    []string{"PYTHONDONTWRITEBYTECODE=1"},
	Parked: 32 << 10, Seeks: recoded,
	Trial:   []byte("import json, threading\nt = threading.Thread(target=json.dumps, args=([1],))\nt.start()\nt.join()\n"),
	Package: "python3", Image: "python:3.13-slim",
}

// cookie declares the encoding of a source file, in one of its first two lines (PEP 263).
var cookie = regexp.MustCompile(`coding[:=][ \t]*([-\w.]+)`)

// recoded reports whether code declares an encoding for which python reads the file a second time: any but utf-8, which
// it knows by that spelling alone.
func recoded(code []byte) bool {
	first, rest, _ := bytes.Cut(code, []byte("\n"))
	second, _, _ := bytes.Cut(rest, []byte("\n"))
	for _, m := range cookie.FindAllSubmatch(bytes.Join([][]byte{first, second}, []byte("\n")), -1) {
		name := strings.ReplaceAll(strings.ToLower(string(m[1])), "_", "-")
		if name != "utf-8" && !strings.HasPrefix(name, "utf-8-") {
			return true
		}
	}
	return false
}
