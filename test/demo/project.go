package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/cove-sandbox/cove/test/modeltest"
)

// task is what agents are asked, and script what the model says to it.
const (
	task   = "make the failing test pass"
	script = `
aside: A small project
prompts:
  - when: make the failing test pass
    turns:
      - say: I run the tests first.
        do: [{shell: python3 -B -m unittest -q}]
      - say: One fails. I look at what it tests.
        do: [{read: shop.py}]
      - say: The discount is added instead of taken off.
        do: [{edit: {path: shop.py, old: "price + price * percent / 100", new: "price - price * percent / 100"}}]
      - say: Once more, and a look at what a place that nobody allowed has to say.
        do:
          - shell: python3 -B -m unittest -q
          - shell: curl -sS --max-time 10 https://elsewhere.example/ || echo "it is out of reach"
      - say: The test passes now, since the discount is taken off.
  - when: mend it
    turns:
      - say: I run the tests first.
        do: [{shell: python3 -B -m unittest -q}]
      - say: The discount is added. I look at the code.
        do: [{read: shop.py}]
      - say: It should be taken off.
        do: [{edit: {path: shop.py, old: "price + price * percent / 100", new: "price - price * percent / 100"}}]
      - do: [{shell: python3 -B -m unittest -q}]
      - say: It passes. Which key do I work with, and what else can I reach?
        do: [{shell: "echo $ANTHROPIC_API_KEY"}]
      - do: [{shell: "curl -sS --max-time 10 https://elsewhere.example/ || true"}]
      - say: The discount is taken off now, and the test passes.
`
)

// agentsDir is where scripts/agents.sh installs agents.
const agentsDir = ".cache/agents/agents"

// project is a small one, in git, one of whose tests fails.
type project struct {
	dir       string
	installed bool // agents beside Cove's own
}

func newProject(dir string) (p project, err error) {
	p.dir = filepath.Join(dir, "shop")
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return p, err
	}
	for name, text := range map[string]string{
		"shop.py": "def discounted(price, percent):\n    return price + price * percent / 100\n",
		"test_shop.py": "import unittest\n\nfrom shop import discounted\n\n\nclass Discount(unittest.TestCase):\n    def " +
			"test_a_tenth(self):\n        self.assertEqual(discounted(200, 10), 180)\n",
	} {
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o644); err != nil {
			return p, err
		}
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A"},
		{"-c", "user.name=Demo", "-c", "user.email=demo@shop.test", "commit", "-qm", "Open the shop"}} {
		if out, err := exec.Command("git", append([]string{"-C", p.dir}, args...)...).CombinedOutput(); err != nil {
			return p, fmt.Errorf("git %s: %w: %s", args[0], err, out)
		}
	}
	return p, nil
}

// give is an agent's task, after which the project is as it was: the next one has the same.
func (p project) give(title, agent string) act {
	return act{title: title, args: []string{agent, "--dir", p.dir, "--apply", task},
		judge: all(prints("The test passes now"), func(result) string {
			defer exec.Command("git", "-C", p.dir, "checkout", "-q", ".").Run()
			text, err := os.ReadFile(filepath.Join(p.dir, "shop.py"))
			if err != nil || !strings.Contains(string(text), "price - price") {
				return fmt.Sprintf("its work did not arrive: %q, %v", text, err)
			}
			return ""
		})}
}

// agentModels is the model server of the demonstration.
func agentModels(key string) (*modeltest.Server, error) {
	s, err := modeltest.Parse("the demonstration", []byte(script))
	if err != nil {
		return nil, err
	}
	return modeltest.New(modeltest.Options{Script: s, Keys: []string{key}}), nil
}

// showAgents gives the demonstration's own state what was installed for it, and says whether that was anything.
func showAgents(home string) (bool, error) {
	installed, err := filepath.Abs(cmp.Or(os.Getenv("COVE_TEST_AGENTS"), agentsDir))
	if err != nil {
		return false, err
	}
	if _, err := os.Stat(installed); err != nil {
		return false, nil
	}
	if err := os.MkdirAll(home, 0o700); err != nil {
		return false, err
	}
	return true, link(installed, filepath.Join(home, "agents"))
}

// tasks are what agents are given to do: Cove's own, and where it is installed another.
func (p project) tasks() []act {
	all := []act{p.give("Cove's own, on a failing test", "worker")}
	if p.installed {
		all = append(all, p.give("Claude Code, on the same", "claude"))
	}
	return append(all,
		act{"What they did is on record", []string{"runs", "list"}, "", prints(task)},
		act{"Where they were kept from", []string{"network", "log", "--denied", "--host", "elsewhere.example"}, "",
			prints("elsewhere.example")})
}

// link copies a directory whose files nobody writes to, at once where that can be.
func link(from, to string) error {
	if out, err := exec.Command("sh", "-c", `cp -a --link "$1" "$2" 2>/dev/null || cp -a "$1/." "$2"`, "sh", from, to).
		CombinedOutput(); err != nil {
		return fmt.Errorf("copying %s: %w: %s", from, err, out)
	}
	return nil
}
