package runtime

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
)

var python = Runtime{
	Name: "python", Aliases: []string{"python3", "py"}, File: "main.py",
	// -u: output is seen when it is written, not when a buffer is full.
	Command: []string{"python3", "-u", "main.py"}, Probe: []string{"python3", "--version"},
	Env:    []string{"PYTHONDONTWRITEBYTECODE=1"},
	Parked: 32 << 10, Seeks: recoded, Trial: []byte(pythonTrial), Preload: preload,
	Package: "python3", Image: "python:3.13-slim",
}

const pythonTrial = `
import json, threading
t = threading.Thread(target=json.dumps, args=([1],))
t.start()
t.join()
`

// Python executes the line of its file when it starts, as that is in a directory for modules of the user's, and imports
// modules when all directories of modules are known, where it looks for usercustomize. The module random draws its
// seed when it is first used.
const pythonPlace, pythonFile, pythonCheck = `
import os, site, sys
site.ENABLE_USER_SITE or sys.exit("this python reads no modules of its user's, as one of a virtual environment")
print(os.path.join(site.getusersitepackages(), "cove.pth"))
`, `
import os, site, sys
names, run, place = "%s".split(), site.execusercustomize, site.getusersitepackages()
module = type(sys)
class Seeds(module):
    def __getattribute__(self, name):
        self.__class__ = module
        self._inst.seed()
        return getattr(self, name)
def load():
    site.execusercustomize = run
    kept, null = [os.dup(1), os.dup(2)], os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    for name in names:
        try: __import__(name)
        except BaseException: pass # the check says so
    for n, fd in enumerate(kept, 1):
        os.dup2(fd, n)
        os.close(fd)
    os.close(null)
    random = sys.modules.get("random")
    if random: random.__class__ = Seeds
    run()
site.execusercustomize = load
os.remove(os.path.join(place, "cove.pth"))
try:
    os.rmdir(place)
    sys.path.remove(place)
    for _ in range(3):
        place = os.path.dirname(place)
        os.rmdir(place)
except OSError: pass # it has modules of its own
`, `
import importlib, sys
for name in "%s".split():
    if name not in sys.modules:
        importlib.import_module(name)
        sys.exit("%%s can be imported, but not when python starts" %% name)
`

func preload(modules []string) Preload {
	names := strings.Join(modules, " ")
	return Preload{Place: []string{"python3", "-c", pythonPlace},
		Text:  fmt.Appendf(nil, "import sys; exec(%q, {})\n", fmt.Sprintf(pythonFile, names)),
		Check: fmt.Appendf(nil, pythonCheck+pythonTrial, names)}
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
