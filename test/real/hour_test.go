//go:build linux

package real

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// hour is what the first hour of a person needs, and what it prints.
var hour = document{
	setup:  "mkdir sums; cd sums\n" + project + aKey + "echo 'cd /home/ada/sums' >>/run/session\n",
	agents: true,
	lines: []how{
		{line: "cove version", prints: "cove 1.2.3 "},
		{line: "cove run python -c 'print(6 * 7)' --engine docker", prints: "42\n"},
		{line: "cove run python", prints: "42\n"},
		{line: "cove new owner/tool", keys: detach},
		{line: "cove attach", keys: []string{attached, "echo $((6 * 7)) >answer; cat answer\r", "42", "\x10\x11"}},
		{line: "cove diff", prints: "+42\n"},
		{line: "git ls-remote", prints: "1\n"},
		{line: "cove list -q"},
		{line: "cove list", prints: "brave-otter"},
		{line: "cove status", prints: "brave-otter"},
		{line: "cat README.md", prints: "# sums\n"},
		{line: "cove claude \"make", keys: []string{"take it over", "y\n"}, prints: "Add subtracted, and adds now."},
		{line: "git diff", prints: "add.py"},
		{line: "cove codex", prints: "Add subtracted, and adds now."},
		{line: "cove worker", prints: "Add subtracted, and adds now."},
		{line: "cove claude --resume", prints: "I have looked at it."},
		{line: "cove runs list", prints: "have another look"},
		{line: "cove start", prints: "Add subtracted, and adds now."},
		{line: "cove serve &", stays: "listening"},
		{line: "curl", prints: `"output":"42\n"`},
		{line: "cove server status", prints: "process"},
		{line: "cove destroy --all", keys: []string{"on: ", "5\n", "again: ", "5\n"}, prints: "calm-heron"},
	},
}

// testHour is the first hour of a person with the installed package, from "cove doctor" to the end, on a machine with
// nothing set.
func testHour(t *testing.T, w *world, number int) {
	text, err := os.ReadFile("testdata/hour.md")
	if err != nil {
		t.Fatal(err)
	}
	lines, _ := readDocument(string(text))
	hour.check(t, lines)
	m := w.machine(t, number)
	unpacked := t.TempDir()
	for dir := unpacked; dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	deb := filepath.Join(release(t, distTool(t), "1.2.3"), "cove_1.2.3_linux_"+runtime.GOARCH+".deb")
	if out, err := exec.Command("dpkg-deb", "--extract", deb, unpacked).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	m = m.with("PATH=" + unpacked + "/usr/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
	m.docker(t)
	(&session{machine: m, document: &hour}).run(lines, nil)
}

// docker starts Docker's daemon where it is by default.
func (m *machine) docker(t *testing.T) {
	script, err := filepath.Abs("../../scripts/start-docker.sh")
	if err != nil {
		t.Fatal(err)
	}
	const dir = "/srv/docker-of-the-hour"
	m.sh("/", script+" "+dir+" && ln -s "+dir+"/docker.sock /run/docker.sock")
	t.Cleanup(func() { m.sh("/", script+" --stop "+dir) })
}
