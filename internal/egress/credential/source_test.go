package credential

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/clock/clocktest"
	"github.com/cove-sandbox/cove/internal/secret"
)

func source(t testing.TB, s string) Source {
	t.Helper()
	src, err := ParseSource(s)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// script installs a program into the first directory of PATH.
func script(t *testing.T, name, text string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestSources(t *testing.T) {
	t.Setenv("COVE_TEST_SERVICE", canary)
	home := t.TempDir()
	t.Setenv("HOME", home)
	if err := os.WriteFile(filepath.Join(home, "key"), []byte(canary+"\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	script(t, "gh",
		`[ "$*" = "auth token --hostname github.com" ] && [ "$GH_PROMPT_DISABLED" = 1 ] && echo "$COVE_TEST_SERVICE"`)
	for text, want := range map[string]string{
		"env:COVE_TEST_SERVICE":              "env:COVE_TEST_SERVICE",
		"file:~/key":                         "file:" + home + "/key",
		"file:" + home + "/x/../key":         "file:" + home + "/key",
		"command:printenv COVE_TEST_SERVICE": "command:printenv",
		"gh":                                 "gh",
	} {
		s := source(t, text)
		if s.String() != want {
			t.Errorf("%s is called %s", text, s)
		}
		l, err := NewValues(clock.Real()).get(t.Context(), s, hostOf(t, "api.github.com"), 443)
		if err != nil || l.value.Reveal() != canary || l.user != "" {
			t.Errorf("%s gives %q, %v", text, l.value.Reveal(), err)
		}
	}
}

// TestGitCredential runs a real git with a credential helper.
func TestGitCredential(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", home)
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	t.Setenv("COVE_TEST_SERVICE", canary)
	asks := filepath.Join(home, "asks")
	if err := os.WriteFile(asks, []byte("#!/bin/sh\ntouch "+home+"/asked\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(home, ".gitconfig")
	if err := os.WriteFile(config,
		[]byte("[credential \"https://git.example.com:8443\"]\n\thelper = \"!f() { echo username=robot; echo "+
			"password=$COVE_TEST_SERVICE; }; f\"\n[core]\n\taskPass = "+asks+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	v, s := NewValues(clock.Real()), source(t, "git-credential")
	l, err := v.get(t.Context(), s, hostOf(t, "git.example.com"), 8443)
	if err != nil || l.user != "robot" || l.value.Reveal() != canary {
		t.Errorf("%q %q, %v", l.user, l.value.Reveal(), err)
	}
	for _, host := range []string{"git.example.com", "other.example.com"} { // port 443
		if _, err := v.get(t.Context(), s, hostOf(t, host), 443); err == nil {
			t.Errorf("%s has a password", host)
		}
	}
	if _, err := os.Stat(filepath.Join(home, "asked")); err == nil {
		t.Error("a program was run to ask for a password")
	}

	set := set(t,
		"credentials: [{name: a, source: git-credential, to: [{hosts: git.example.com, ports: 8443, form: basic}]}]")
	r, h := request(t, "GET", "https://git.example.com:8443/r.git/info/refs")
	if _, err := set.Apply(r, h, nil); err != nil {
		t.Fatal(err)
	}
	if user, password, _ := h.BasicAuth(); user != "robot" || password != canary {
		t.Errorf("%s:%s", user, password)
	}
}

func TestAccounts(t *testing.T) {
	for target, want := range map[string]string{"api.github.com": "github.com", "github.com": "github.com",
		"uploads.github.com": "github.com", "notgithub.com": "notgithub.com",
		"ghe.example.com": "ghe.example.com", "github.com.evil.test": "github.com.evil.test"} {
		if got := source(t, "gh").account(hostOf(t, target), 443); got != want {
			t.Errorf("%s is asked for as %s", target, got)
		}
	}
	if got := source(t, "git-credential").account(hostOf(t, "git.example.com"), 8443); got != "git.example.com:8443" {
		t.Errorf("with a port: %s", got)
	}
	if got := source(t, "env:X_Y").account(hostOf(t, "git.example.com"), 443); got != "" {
		t.Errorf("a variable: %s", got)
	}
}

func TestSourcesThatFail(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("COVE_TEST_SHORT", "short")
	t.Setenv("COVE_TEST_LINES", canary+"\n"+canary)
	large := filepath.Join(dir, "large")
	if err := os.WriteFile(large, []byte(strings.Repeat(canary, 10000)), 0o600); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"env:COVE_TEST_MISSING":     "the variable is not set",
		"env:COVE_TEST_SHORT":       "it has 5 bytes",
		"env:COVE_TEST_LINES":       "control characters",
		"file:" + dir + "/missing":  "no such file",
		"file:" + dir:               "not a regular file",
		"file:" + fifo:              "not a regular file",
		"file:" + large:             "too large",
		"command:cove-test-no-such": "failed",
		"command:false":             "exit status 1",
		"command:true":              "it has 0 bytes",
		"command:cat " + large:      "wrote too much",
		"command:./relative":        "failed",
	} {
		_, err := NewValues(clock.Real()).get(t.Context(), source(t, text), hostOf(t, "x.test"), 443)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
		noLeak(t, text, fmt.Sprint(err))
		if strings.Contains(fmt.Sprint(err), dir) {
			t.Errorf("%s: the error says the path again: %v", text, err)
		}
	}
}

// TestTheFirstMayLeave: a shared read continues when the first caller leaves.
func TestTheFirstMayLeave(t *testing.T) {
	t.Setenv("COVE_TEST_SERVICE", canary)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l, err := NewValues(clock.Real()).get(ctx, source(t, "command:printenv COVE_TEST_SERVICE"), hostOf(t, "x.test"), 443)
	if err != nil || l.value.Reveal() != canary {
		t.Errorf("%q, %v", l.value.Reveal(), err)
	}
}

// TestDeadline: a hanging program is killed, with its children.
func TestDeadline(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		waitFor(t, func() bool { data, _ := os.ReadFile(pids); return strings.Count(string(data), "\n") == 2 })
		cancel()
	}()
	_, err := run(ctx, "", "sh", "-c", "sleep 1000 & echo $$ > "+pids+"; echo $! >> "+pids+"; wait")
	if err == nil || !strings.Contains(err.Error(), "in time") {
		t.Errorf("%v", err)
	}
	data, _ := os.ReadFile(pids)
	for _, line := range strings.Fields(string(data)) {
		pid, err := strconv.Atoi(line)
		if err != nil {
			t.Fatal(err)
		}
		waitFor(t, func() bool { return gone(pid) })
	}
}

// gone reports whether a process has ended, possibly as a zombie.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(stat), ") ")
	return err != nil || strings.HasPrefix(state, "Z")
}

func waitFor(t *testing.T, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !condition(); {
		if time.Now().After(end) {
			t.Error("it did not happen within a minute")
			return
		}
		time.Sleep(5 * time.Millisecond) // sleep: there is no event to wait for
	}
}

// TestProgramsAreRunSeldom: a program's value is kept until it is old or refused; a failed program is not run again for
// a while.
func TestProgramsAreRunSeldom(t *testing.T) {
	runs := filepath.Join(t.TempDir(), "runs")
	fail := filepath.Join(t.TempDir(), "fail")
	script(t, "cove-test-key", "echo run >> "+runs+"; [ ! -e "+fail+" ] || exit 1; echo value-number-$(wc -l < "+runs+")")
	c := clocktest.NewManual(time.Now())
	v, s := NewValues(c), source(t, "command:cove-test-key")
	set, err := NewSet(v,
		parse(t, "credentials: [{name: a, source: 'command:cove-test-key', to: [{hosts: x.test, form: bearer}]}]")...)
	if err != nil {
		t.Fatal(err)
	}
	r, _ := request(t, "GET", "https://x.test/")
	step := func(what, want string) {
		t.Helper()
		var group sync.WaitGroup
		for range 10 { // concurrently
			group.Go(func() {
				l, err := v.get(t.Context(), s, hostOf(t, "x.test"), 443)
				if got := l.value.Reveal(); got != want || (err == nil) != (want != "") {
					t.Errorf("%s: %q, %v; want %q", what, got, err, want)
				}
			})
		}
		group.Wait()
	}
	step("first", "value-number-1")
	c.Advance(lifetime - time.Second)
	step("still good", "value-number-1")
	c.Jump(24 * time.Hour)
	step("a clock set forward", "value-number-1")
	c.Advance(2 * time.Second)
	step("old", "value-number-2")
	set.Refused(r)
	step("refused at once", "value-number-2")
	c.Advance(settled + time.Second)
	set.Refused(r)
	step("refused later", "value-number-3")

	if err := os.WriteFile(fail, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.Advance(lifetime + time.Second)
	step("fails", "")
	os.Remove(fail)
	step("too soon after", "")
	c.Advance(pause + time.Second)
	step("works again", "value-number-5")

	known, version := set.Known()
	for _, want := range []string{"value-number-1", "value-number-2", "value-number-3", "value-number-5"} {
		if !has(known, want) {
			t.Errorf("%s is not known any more", want)
		}
	}
	if version != 4 {
		t.Errorf("the version is %d after 4 values", version)
	}
	for range 10 {
		c.Advance(lifetime + time.Second)
		if _, err := v.get(t.Context(), s, hostOf(t, "x.test"), 443); err != nil {
			t.Fatal(err)
		}
	}
	if known, _ := set.Known(); len(known) != 1+maxFormer {
		t.Errorf("%d values are remembered", len(known))
	}
	other, err := NewSet(v, parse(t, bearerTo)...)
	if err != nil {
		t.Fatal(err)
	}
	if known, _ := other.Known(); len(known) != 0 {
		t.Errorf("another set knows %d of these values", len(known))
	}
}

func has(known []secret.Value, want string) bool {
	for _, k := range known {
		if k.Reveal() == want {
			return true
		}
	}
	return false
}

func TestParseSource(t *testing.T) {
	for _, text := range []string{"", "env:", "env:A B", "env:A-B", "env:1A", "file:", "file:relative", "file:/a\nb",
		"command:", "command: ", "command:sh -c 'x'", "command:a|b", "command:a $B", "gh:x", "git-credential:", "vault:x",
		canary, "env:" + canary, "ENV:A"} {
		_, err := ParseSource(text)
		if cove.ErrorCode(err) != cove.InvalidArgument || cove.ErrorHint(err) == "" {
			t.Errorf("%q: %v", text, err)
		}
		noLeak(t, text, fmt.Sprint(err))
	}
	if _, err := command([]string{"a", "b\x00c"}); err == nil {
		t.Error("a NUL in an argument is accepted")
	}
}

func FuzzParseSource(f *testing.F) {
	for _, s := range []string{"env:A", "file:/a", "command:a b", "gh", "git-credential", "x", "file:~/x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSource(text)
		if err != nil {
			if len(text) > 40 && strings.Contains(err.Error(), text) {
				t.Errorf("the error repeats what was given: %v", err)
			}
			return
		}
		again, err := ParseSource(s.String())
		if s.kind != fromCommand && (err != nil || again.key() != s.key()) {
			t.Errorf("%q became %q, and that %q, %v", text, s, again, err)
		}
	})
}
