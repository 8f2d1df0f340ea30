//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/cove-sandbox/cove/internal/rootfs"
	"github.com/cove-sandbox/cove/test/bench/result"
)

// language is a runtime whose one-liners are measured.
type language struct{ name, code, program, flag string }

var languages = []language{
	{"python", "print(1)", "python3", "-c"}, {"node", "console.log(1)", "node", "-e"}, {"bash", "echo 1", "bash", "-c"},
	{"sh", "echo 1", "sh", "-c"},
}

// plain runs the same code without a sandbox, by the program that sandboxes have.
func (l language) plain() []string {
	for _, dir := range strings.Split(rootfs.Path, ":") {
		if path := filepath.Join(dir, l.program); executable(path) {
			return []string{path, l.flag, l.code}
		}
	}
	return nil
}

func executable(path string) bool {
	_, err := exec.LookPath(path)
	return err == nil
}

func plainly(args []string) contender {
	if args == nil {
		return contender{name: result.Plain, why: "not installed"}
	}
	return contender{name: result.Plain, run: plain(args...)}
}

// Loads under which sandboxes start.
var starts = []struct {
	name   string
	load   load
	rounds int // for 30 that are asked for
}{
	{"one after the other", one, 100},
	{"one every 40 ms", arrivals(50, 40*time.Millisecond), 2},
	{"a hundred at once", arrivals(100, 0), 2},
}

// share is how many of rounds, which are for 30, are right for what was asked for.
func share(rounds, asked int) int { return max(1, rounds*asked/30) }

// startScenarios measure from the request for a sandbox to the end of its first command.
func startScenarios(ctx context.Context, c *coveUnderTest, p peers, rounds int) ([]scenario, error) {
	cold, err := c.build.server(ctx, forms[0].settings...)
	if err != nil {
		return nil, err
	}
	var scenarios []scenario
	for _, s := range starts {
		scenarios = append(scenarios, scenario{part: "start", name: "first command: " + s.name, load: s.load,
			rounds: share(s.rounds, rounds), contenders: append([]contender{
				plainly([]string{"/bin/true"}),
				{name: posted, run: c.execute("sh", "echo 1")},
				{name: "cove, POST /execute, no pool", run: cold.execute("sh", "echo 1")},
				c.stays("cove, long-lived sandbox"),
				c.first("cove, its engine alone", c.ready),
				c.first("cove, its engine, nothing ready", c.unready),
			}, p.contenders("/bin/true")...)})
	}
	python := languages[0].plain()
	return append(scenarios, scenario{part: "start", name: burstOfPython, load: arrivals(100, 0), rounds: share(3, rounds),
		contenders: []contender{plainly(python), {name: posted, run: c.execute("python", "print(1)")},
			{name: "cove, POST /execute, no pool", run: cold.execute("python", "print(1)")}}}), nil
}

// posted is Cove as users have it: HTTP on loopback, each run recorded and audited.
const posted = "cove, POST /execute"

const burstOfPython = "a Python one-liner: a hundred at once"

// snippetScenarios measure one-liners of each runtime in each form.
func snippetScenarios(ctx context.Context, b *build, p peers, rounds int) (scenarios []scenario) {
	for _, l := range languages {
		s := scenario{part: "one-liners", name: l.code + " in " + l.name, group: l.name, load: one,
			rounds: share(100, rounds), budget: 8 * time.Second}
		args := l.plain()
		s.contenders = append(s.contenders, plainly(args))
		for _, f := range forms {
			if args == nil {
				s.contenders = append(s.contenders, contender{name: f.name, why: "there is no " + l.program})
				continue
			}
			s.contenders = append(s.contenders, f.contender(ctx, b, l.name, l.code))
		}
		if l.name == "python" && args != nil {
			s.contenders = append(s.contenders, p.contenders(args...)...)
		}
		scenarios = append(scenarios, s)
	}
	return scenarios
}

// sustainedScenarios measure how many runs clients that never pause have, each in a sandbox of its own.
func sustainedScenarios(ctx context.Context, b *build, rounds int) ([]scenario, error) {
	s, err := b.server(ctx)
	if err != nil {
		return nil, err
	}
	var scenarios []scenario
	for _, l := range []language{languages[0], languages[3]} {
		args := l.plain()
		if args == nil {
			continue
		}
		for _, clients := range []int{1, 2, 8, 32} {
			scenarios = append(scenarios, scenario{part: "sustained", name: sustainedName(l.name, clients), group: l.name,
				x: float64(clients), unit: "runs/s", load: sustained(clients, 2*time.Second), rounds: share(2, rounds),
				contenders: []contender{plainly(args), {name: posted, run: s.execute(l.name, l.code)}}})
		}
	}
	return scenarios, nil
}

func sustainedName(language string, clients int) string {
	return fmt.Sprintf("single-use runs of %s, %d clients", language, clients)
}

// commandScenarios measure the command line, as processes.
func commandScenarios(ctx context.Context, b *build, rounds int) ([]scenario, error) {
	s, err := b.server(ctx)
	if err != nil {
		return nil, err
	}
	cove, err := binaryIn(b.bin, "cove")
	if err != nil {
		return nil, err
	}
	lonely := &server{dir: filepath.Join(b.dir, "no-server")}
	if err := os.MkdirAll(lonely.dir, 0o755); err != nil {
		return nil, err
	}
	const title = "a whole process"
	return []scenario{
		{part: "command line", name: "cove version", group: title, load: one, rounds: rounds,
			contenders: []contender{
				plainly([]string{"/bin/true"}), {name: "cove", run: s.command(cove, "version")}}},
		{part: "command line", name: "cove run bash -c true", group: title, load: one, rounds: rounds,
			contenders: []contender{
				plainly([]string{"/bin/bash", "-c", "true"}),
				{name: "cove, with a server", run: s.command(cove, "run", "bash", "-c", "true")},
				{name: "cove, with nothing running", run: lonely.command(cove, "run", "bash", "-c", "true")}}},
		{part: "command line", name: "cove run python -c 'print(1)'", group: title, load: one, rounds: rounds,
			contenders: []contender{plainly(languages[0].plain()),
				{name: "cove, with a server", run: s.command(cove, "run", "python", "-c", "print(1)")}}},
	}, nil
}

// targets are the figures that Cove is to reach on two processors.
var targets = []result.Target{
	{Scenario: goCold, Contender: coveBuild, Statistic: result.P50, Ratio: true, Beside: dockerBuild, Bound: 1},
	{Scenario: goChanged, Contender: coveCaches, Statistic: result.P50, Ratio: true, Beside: dockerBuild, Bound: 0.5},
	{Scenario: goMounted, Contender: coveBuild, Statistic: result.P50, Ratio: true, Beside: podmanBuild, Bound: 0.5},
	{Scenario: nodeCold, Contender: coveBuild, Statistic: result.P50, Ratio: true, Beside: dockerBuild, Bound: 1},
	{Scenario: nodeChanged, Contender: coveBuild, Statistic: result.P50, Ratio: true, Beside: dockerBuild, Bound: 0.5},
	{Scenario: aptInstall, Contender: coveApt, Statistic: result.P50, Ratio: true, Bound: 1.15},
	{Scenario: "print(1) in python", Contender: "cove, zygote", Statistic: result.P50, Ratio: true, Bound: 0.1},
	{Scenario: "print(1) in python", Contender: "cove, zygote", Statistic: result.P99, Ratio: true, Bound: 0.5},
	{Scenario: "echo 1 in bash", Contender: "cove, parked", Statistic: result.P50, Ratio: true, Bound: 0.5},
	{Scenario: "console.log(1) in node", Contender: "cove, parked", Statistic: result.P50, Ratio: true, Bound: 0.2},
	{Scenario: sustainedName("python", 8), Contender: posted, Statistic: result.P50, Ratio: true, Bound: 1.5, Least: true},
	{Scenario: sustainedName("sh", 8), Contender: posted, Statistic: result.P50, Ratio: true, Bound: 1, Least: true},
	{Scenario: burstOfPython, Contender: posted, Statistic: result.Last, Ratio: true, Bound: 0.7},
	{Scenario: "first command: one after the other", Contender: "cove, its engine, nothing ready", Statistic: result.P50,
		Bound: 6},
	{Scenario: "npm ci of 250 packages", Contender: sharedPackages, Statistic: result.P50, Ratio: true,
		Beside: memoryPackages, Bound: 1.1},
	{Scenario: "cove version", Contender: "cove", Statistic: result.P50, Bound: 3},
	{Scenario: "cove run bash -c true", Contender: "cove, with nothing running", Statistic: result.P50, Bound: 15},
	{Scenario: "cove run bash -c true", Contender: "cove, with a server", Statistic: result.P50, Bound: 6},
	{Scenario: "cove run python -c 'print(1)'", Contender: "cove, with a server", Statistic: result.P50,
		Ratio: true, Bound: 1},
	{Scenario: memoryName("python, parked", 100), Contender: private, Statistic: result.P50, Bound: 14},
	{Scenario: memoryName("python, zygote", 100), Contender: private, Statistic: result.P50, Bound: 2},
}
