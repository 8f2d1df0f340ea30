//go:build linux

package real

// measures is why no benchmark is run.
const measures = "measures the machine for minutes"

// table has what each document needs, and how lines of it are run; those that cannot be run here have the reason.
func table() map[string]*document {
	return map[string]*document{
		"README.md": {
			setup:  project,
			agents: true,
			words:  map[string]string{"…": "sk-ant-of-ada"},
			lines: []how{
				{line: "make demo", why: "test/demo runs it"},
				{line: "make test", why: "this test is a part of it"},
				{line: "make build && sudo make install", why: installs},
				{line: "cove claude", keys: []string{"take it over", "y\n"}, prints: "claude has done it"},
				{line: "cove run bash -c 'id -un", code: 1},
				{line: "cove run bash -c 'echo x >", code: 1},
				{line: "cove serve &", stays: "listening"},
				{line: "curl", prints: `"output":"42\n"`},
			},
		},
		"docs/agents.md": {
			setup:  project + aKey + "cp -a --link /var/lib/cove/agents /var/lib/kept\n",
			agents: true,
			words:  map[string]string{"NAME": "$(cove list -q | head -1)"},
			lines: []how{
				{line: "cove agents install", why: "needs npm's registry; install of TestDefaults has it where it is"},
				{line: "cove claude", keys: []string{"take it over", "y\n"}, prints: "claude has done it"},
				{line: "cove agents list", prints: "claude"},
				{line: "cove agents doctor", before: "cp -a --link /var/lib/kept/claude /var/lib/cove/agents/",
					prints: "Claude Code"},
				{line: "cove new owner/repo --agent claude", keys: detach},
				{line: "cove attach NAME", keys: detach},
			},
		},
		"docs/api.md": {lines: []how{
			{line: "cove serve", stays: "listening"},
			{line: "curl", prints: `"output":"42\n"`},
		}},
		"docs/backup.md": {lines: []how{
			{line: "mv ~/.local/share/cove", why: "moves a home; TestBackup of test/sandboxes has one of its own"},
			{line: "cove restore cove.tar.zst", why: "needs that home away; TestBackup restores, and the line above does"},
			{line: "cove stop box", before: "cove new --empty --name box --no-attach"},
			{line: "cp -a --sparse=always", why: "TestStopWritesOut of test/sandboxes copies a home so"},
		}},
		"docs/benchmarks.md": {lines: []how{
			{line: "make bench", why: measures},
			{line: "go run ./test/bench", why: measures},
		}},
		"docs/claude.md": {
			setup: "mkdir sums; cd sums\n" + project + aKey + gitHub + `echo 'cd /home/ada/sums' >>/run/session
				echo 'Have a look.' >task.md; echo 'The failing test: nobody can log in.' >login.md; touch main.go
				echo '{"type":"object","required":["verdict"],"properties":{"verdict":{"type":"string"}}}' >report.json
				echo 'profiles: [{name: careful, agent: claude, limits: {memory_mb: 1024}}]' >/var/lib/cove/profiles.yaml
				`,
			agents: true,
			lines: []how{
				{line: "cove claude \"make", keys: []string{"take it over", "y\n"}, prints: "Add subtracted, and adds now."},
				{line: "cove codex --schema", prints: "fine"},
				{line: "cove claude --json", prints: "Bash\n"},
			},
		},
		"docs/configuration.md": {lines: []how{
			{line: "cove config show", prints: "max_concurrent: 64  # default"},
			{line: "COVE_SANDBOX_MAX_CONCURRENT=8 cove serve", stays: "listening"},
			{line: "cove serve --set", stays: "127.0.0.1:9000"},
		}},
		"docs/credentials.md": {
			setup: aKey + fetchFrom("ask.py", "https://api.anthropic.com/v1/models"),
			lines: []how{{line: "cove credentials list", prints: "anthropic"}},
		},
		"docs/doctor.md": {lines: []how{
			{line: "sudo cove doctor",
				why: "the path of sudo does not lead to the programs of a test, and root is here already"},
		}},
		"docs/engines.md": {lines: []how{
			{line: "docker context use build", why: "needs Docker's daemon; TestContexts of internal/engine/docker has one"},
			{line: "cove run python -c 'print(1)' --engine docker",
				why: "needs Docker's daemon, which internal/engine/docker has"},
			{line: "sudo systemctl start podman.socket", why: "needs systemd as process 1"},
			{line: "systemctl --user start podman.socket", why: "needs systemd as process 1"},
			{line: "cove run python -c 'print(1)' --engine podman",
				why: "needs a user's Podman service; TestPodmanOfUser of internal/engine/docker has one"},
			{line: "sudo cove run python -c 'print(1)' --engine podman",
				why: "needs Podman's service, which internal/engine/docker has"},
		}},
		"docs/gateway.md": {
			setup: aKey + "echo 'rules: [{hosts: api.example.com}]' >policy.yaml\n",
			lines: []how{
				{line: "cove gateway --listen", stays: "clients are registered"},
				{line: "env $(cove gateway add me", prints: "api.example.com/"},
				{line: "docker", why: needsDocker},
				{line: "cove gateway attach", why: needsDocker},
				{line: "cove ca", before: "cove gateway add builder --policy policy.yaml"},
			},
		},
		"docs/generate.md": {
			setup: project + aKey + "echo 42 >report.txt; echo 'What is it?' >question.txt; echo '{}' >figures.json\n",
			lines: []how{
				{line: "cove generate --file report.txt --schema", why: "needs a model that answers in JSON; TestGenerate has one"},
			},
		},
		"docs/git-api.md": {
			setup: aKey + `git clone -q https://github.com/owner/repo; echo 'cd /home/ada/repo' >>/run/session
				`,
			lines: []how{
				{line: "cove new . --worktree", keys: detach},
				{line: "git status", inside: "brave-otter",
					before: "cove exec brave-otter -- sh -c 'echo more >>README.md; git config --global user.name A; " +
						"git config --global user.email a@site.example'"},
				{line: "git push origin HEAD:main", inside: "brave-otter", code: 128},
				{line: "git ", inside: "brave-otter"},
			},
		},
		"docs/github.md": {
			setup: aKey + fetchFrom("agent.py", "https://api.github.com/user"),
			lines: []how{
				{line: "cove run python agent.py --allow api.github.com --credential github --allow-pr"},
				{line: "gh pr merge 7", why: "TestGitHub of test/egress has gh ask GitHub's API for all of its operations"},
			},
		},
		"docs/images.md": {
			setup: image,
			lines: []how{
				{line: "cove image pull", why: "needs a registry on the internet; internal/image pulls from one of its own"},
				{line: "cove image push", why: "needs a registry; TestImagePush of test/sandboxes has Docker's"},
				{line: "cove run --image", why: "needs images of a registry; TestUserOfAnImage and TestProgramOfAnImage of " +
					"test/sandboxes make some"},
				{line: "cove new --empty --image node:22", why: "needs that image; TestUserOfAnImage of test/sandboxes has one"},
				{line: "cove new --empty --root --image debian:12", why: "needs that image; TestCommit of test/sandboxes has one"},
				{line: "cove exec box", why: "is about that sandbox"},
				{line: "cove sandbox commit", why: "is about that sandbox; TestCommit of test/sandboxes commits one"},
				{line: "sudo apt-get install qemu-user-static", why: "changes the machine; TestEmulators of test/vmtest has it"},
				{line: "cove image build -t mine:arm64", why: "needs an emulator; TestEmulators of test/vmtest has one"},
				{line: "cove image build", why: "needs an image with a shell; TestImageBuild of test/sandboxes has one"},
			},
		},
		"docs/install.md": {lines: []how{
			{line: "sudo dpkg -i", why: "TestPackage runs it, on a copy of the machine"},
			{line: "sudo sh dist/install.sh", why: "TestRelease runs it"},
			{line: "sh install.sh --prefix", why: "TestRelease runs it, with a directory in place of a server"},
			{line: "sudoedit", why: "needs the package and an editor; TestPackage has the file"},
			{line: "sudo systemctl", why: "needs systemd as process 1; TestPackage runs the server with the rights of its unit"},
			{line: "make build && sudo make install", why: installs},
			{line: "tar xzf cove_1.2.3_darwin_arm64.tar.gz", why: "needs macOS; TestRelease looks into the archive"},
			{line: "export COVE_SERVER=", why: sshRuns},
			{line: "cove run python -c 'print(1)'", why: sshRuns},
			{line: "cove new owner/repo", why: sshRuns},
		}},
		"docs/migrating.md": {setup: serve, lines: []how{{line: "curl", prints: `42`}}},
		"docs/model-server.md": {
			setup: project + `echo 'export PATH=$PATH:/var/lib/cove/agents/claude/current-bin' >>/run/session
				ln -s $(echo /var/lib/cove/agents/claude/[0-9]*/bin) /var/lib/cove/agents/claude/current-bin
				`,
			agents: true,
			words:  map[string]string{"go run ./test/modelserver": "modelserver"}, // that TestDocuments has built
			lines: []how{
				{line: "go run ./test/modelserver --script", stays: "8089"},
				{line: "go run ./test/modelserver", stays: "8089"},
				{line: "cove run python agent.py",
					why: "needs a server at that address; TestPrivateServer of the gateway has one"},
				{line: "GOOGLE_GEMINI_BASE_URL", why: "test/agents has Gemini CLI with this server"},
			},
		},
		"docs/models.md": {
			setup: aKey + `cat >agent.py <<'END'
import json, os, urllib.request
body = {"model": "claude-x", "max_tokens": 9, "messages": [{"role": "user", "content": "review"}]}
urllib.request.urlopen(urllib.request.Request(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages",
    json.dumps(body).encode(), {"x-api-key": os.environ["ANTHROPIC_API_KEY"]}))
END
`,
			lines: []how{
				{line: "cove run python agent.py", prints: "cove: models: anthropic 1 request"},
				{line: "cove claude --model-provider bedrock", why: "needs Amazon's address; TestClouds of test/agents has it"},
			},
		},
		"docs/mounts.md": {setup: `mkdir data project; echo 42 >data/n; echo 'print(open("/data/n").read())' >main.py
			printf 'all:\n\techo made >made\n' >project/Makefile
			git init -q project && git -C project add . && git -C project commit -qm first
			git -C project config user.name Ada && git -C project config user.email ada@example.com
			echo '# more' >>project/Makefile`},
		"docs/network.md": {
			setup: fetch + "cove run python fetch.py --allow api.example.com\n",
			lines: []how{
				{line: "cove network log $(cove ps", prints: "api.example.com"},
				{line: "cove network log -f --denied", before: denials, stays: "docs.example.com"},
				{line: "cove network log --host", before: enough, prints: `"host": "api.example.com"`},
				{line: "cove run python fetch.py", prints: "api.example.com/"},
			},
		},
		"docs/limits.md": { // stopped, since the machine may lack CAP_SYS_RESOURCE
			setup: "cove new --empty --name brave-otter --no-attach && cove stop brave-otter\n",
			lines: []how{{line: "cove limits brave-otter", prints: "brave-otter"}},
		},
		"docs/policy.md": {
			setup: fetch + "cove new --empty --name brave-otter --no-attach --network limited\n",
			words: map[string]string{"ho_0123456789abcdefghjkmnpqrs": "$(cove approve | grep -o -m1 'ho_[0-9a-z]*')"},
			lines: []how{
				{line: "cove run python fetch.py", prints: "api.example.com/"},
				{line: "cove approve   ", before: asking, prints: "upload.example.com"},
				{line: "cove approve -f", stays: "upload.example.com"},
				{line: "cove approve ho_", before: asking},
				{line: "cove approve --all", before: asking},
			},
		},
		"docs/devcontainers.md": {
			setup: project + `mkdir .devcontainer; cat >.devcontainer/devcontainer.json <<'END'
{"containerEnv": {"STAGE": "test"}, "privileged": true, "postCreateCommand": "echo made for $STAGE"}
END
mkdir -p ../templates/src/go/.devcontainer/go; cat >../templates/src/go/devcontainer-template.json <<'END'
{"id": "go", "options": {"variant": {"type": "string", "default": "1.24"}}}
END
echo '{"image": "golang:${templateOption:variant}"}' >../templates/src/go/.devcontainer/go/devcontainer.json
`,
			lines: []how{
				{line: "cove devcontainer explain", prints: "privileged"},
				{line: "cove devcontainer exec", prints: "test"},
				{line: "cove devcontainer write", prints: "seccomp.json"},
				{line: "cove gateway &", why: "test/egress has it, with the reference command line and Docker"},
				{line: "sudo cove gateway attach", why: "test/egress has it, with the reference command line and Docker"},
				{line: "devcontainer up --workspace-folder", why: "test/egress has it, with Docker"},
				{line: "cove devcontainer templates list", prints: "variant=1.24"},
				{line: "cove devcontainer templates apply", prints: ".devcontainer/go/devcontainer.json"},
			},
		},
		"docs/profiles.md": {
			setup:  image + project + aKey + "mv profiles.yaml /var/lib/cove/; echo 'print(6 * 7)' >job.py\n",
			agents: true,
			lines: []how{
				{line: "cove profile list", prints: "careful"},
				{line: "cove run python job.py", prints: "42\n"},
				{line: "cove new owner/repo", keys: detach},
				{line: "cove claude --profile bare", why: "Claude Code does not work as root without asking; test/agents has it"},
			},
		},
		"docs/running.md": {
			setup: `echo 'console.log("js")' >script.js; echo 'echo sh' >script.sh; printf 'b\na\n' >words.txt
				echo 'import sys; print(sys.argv[2])' >greet.py; echo 'print(input("? ") * 2)' >quiz.py
				mkdir data; echo 1,2 >data/january.csv; echo 'print(open("data/january.csv").read())' >analyse.py`,
			words: map[string]string{"ID": "$(cove ps -aq -n 1)"},
			lines: []how{
				{line: "cove run script.js", prints: "js\n"},
				{line: "cove run bash - ", prints: "sh\n"},
				{line: "cove run python greet.py", prints: "Ada\n"},
				{line: "cat words.txt", prints: "a\nb\n"},
				{line: "cove run python quiz.py", keys: []string{"? ", "ab\n"}, prints: "abab"},
				{line: "cove run python analyse.py", prints: "1,2"},
				{line: "cove run --debuggers", prints: "% time"},
				{line: "cove run --root", why: "needs an image of a registry; TestRootInside of test/sandboxes has one"},
				{line: "cove new --empty --root", why: "likewise: TestRootInsideLasts"},
				{line: "cove exec box", why: "likewise"},
				{line: "cove stop box", why: "likewise"},
				{line: "cove run python -c 'print(1)' --json", prints: `"output": "1\n"`},
				{line: "cove logs ID", prints: "1\n"},
				{line: "cove logs -f ID", before: longRun, stays: "tick"},
				{line: "cove run --server ssh:", why: sshRuns},
				{line: "export COVE_SERVER=ssh:", why: sshRuns},
				{line: "cove new --empty --name otter", why: sshRuns},
				{line: "cd ~/app", why: uploadRuns},
				{line: `cove claude "mend the login"`, why: uploadRuns},
				{line: "cove new . --uncommitted --name otter", why: uploadRuns},
				{line: "cove diff otter", why: uploadRuns},
				{line: "cove apply otter", why: uploadRuns},
				{line: "cove audit --object ID", prints: "killed"},
				{line: "cove audit --verify", prints: "intact"},
			},
		},
		"docs/runs.md": {
			setup:  "mkdir project; cd project\n" + project + aKey,
			agents: true,
			words:  map[string]string{"RUN": "$(cove runs list -q | tail -1)"},
			lines: []how{
				{line: "cove claude", keys: []string{"take it over", "y\n"}},
				{line: "cove runs list", prints: "fix the failing test"},
				{line: "cove runs show RUN", prints: "fix the failing test"},
				{line: "cove runs replay", prints: "Add subtracted"},
				{line: "curl", prints: "event: done"},
			},
		},
		"docs/services.md": {lines: []how{
			{line: "cove new", why: "the image is a registry's; test/sandboxes has services"},
			{line: "cove exec", why: "of the same"},
		}},
		"docs/sandboxes.md": {
			setup:  aKey,
			agents: true,
			lines: []how{
				{line: "cove new owner/repo", keys: detach},
				{line: "cove new https://git.example", keys: detach},
				{line: "cove new . --agent claude", keys: detach},
				{line: "cove new  ", keys: []string{":", "\x03"}, code: 130},
				{line: "cove exec --start dev", code: 2},
			},
		},
		"docs/terminals.md": {
			setup: `cove new --empty --name brave-otter --no-attach
				mkdir data; echo 1 >data/file
				cove exec brave-otter -- sh -c 'mkdir src; printf "test:\n\techo tested\n" | tee Makefile >src/Makefile
					printf "#!/bin/sh\necho ran\n" | tee serve >src/run; chmod +x serve src/run; touch README.md'
				`,
			lines: []how{
				{line: "cove attach brave-otter      ", keys: detach},
				{line: "cove shell", keys: detach},
				{line: "cove exec brave-otter -- make test", prints: "tested\n"},
				{line: "cove forward brave-otter 3000", stays: "localhost:3000"},
				{line: "cove forward brave-otter 8080:80", stays: "localhost:8080"},
				{line: "cove attach brave-otter --detach-keys", keys: []string{attached, "\x1d"}},
				{line: "cove attach brave-otter --list", prints: "t1"},
				{line: "cove attach brave-otter --terminal", keys: detach},
				{line: "cove logs -f", before: ticks, stays: "tick"},
				{line: "tar c data", before: enough},
				{line: "cove exec brave-otter --dir src", prints: "ran\n"},
				{line: "cove exec brave-otter --timeout 5m", prints: `tested\n`},
				{line: "cove exec -t brave-otter -- vim", why: "vim is not on every machine"},
				{line: "cove exec --start", prints: "tested\n"},
			},
		},
		"docs/testing.md": {lines: []how{
			{line: "go test", why: makeTest}, {line: "COVE_TEST_", why: makeTest}, {line: "COVE_FUZZ_", why: makeTest},
			{line: "make build && scripts", why: makeTest}, {line: "scripts/newer-git.sh", why: makeTest},
			{line: "make soak", why: makeTest}, {line: "DOCKER_HOST=", why: makeTest},
			{line: "scripts/start-docker.sh", why: makeTest},
		}},
		"docs/worker.md": {
			setup: aKey + `echo 'review it' >task.md
				echo '{"type":"object","required":["verdict"],"properties":{"verdict":{"type":"string"}}}' >schema.json`,
			words: map[string]string{"prompt-file FILE": "prompt-file task.md", "schema FILE": "schema schema.json", "DIR": ".",
				"MODEL": "claude-x"},
			lines: []how{{line: "cove-worker", prints: "fine"}},
		},
	}
}

// detach leaves a terminal once a shell or an agent is there.
var detach = []string{attached, "\x10\x11"}

// attached is what a terminal is sent once the keys are its program's: to keep the title.
const attached = "\x1b[22;2t"

// aKey is what Ada has exported.
const aKey = `echo 'export ANTHROPIC_API_KEY=sk-ant-of-ada OPENAI_API_KEY=sk-of-ada GH_TOKEN=` + token +
	`' >>/run/session
`

// gitHub makes what is here a checkout of owner/repo, and has git know a password at git.example.
const gitHub = `git remote add origin https://github.com/owner/repo
	git config --global credential.helper store; echo https://ada:` + token + `@git.example >~/.git-credentials
	`

// serve is a server of Ada's.
const serve = `setsid cove serve >/run/serve.txt 2>&1 &
	until grep -q listening /run/serve.txt; do :; done
	`

// project is a project of Ada's with a failing test.
const project = `printf 'def add(a, b):\n    return a - b\n' >add.py
	printf 'import unittest\nfrom add import add\n\nclass Add(unittest.TestCase):\n    def test(self):\n' >test_add.py
	printf '        self.assertEqual(add(1, 2), 3)\n' >>test_add.py
	git init -q -b main . && git add -A && git commit -q -m 'A first version'
	`

// fetchFrom writes a program that prints what a page says, and what the page would not say.
func fetchFrom(file, address string) string {
	return "cat >" + file + ` <<'END'
import urllib.error, urllib.request
try:
    print(urllib.request.urlopen("` + address + `").read().decode())
except urllib.error.HTTPError as e:
    print(e)
END
`
}

var fetch = fetchFrom("fetch.py", "https://api.example.com/v1/items")

// image is what has the name of an image of Docker Hub's: Python of this machine.
const image = `mkdir -p rootfs/usr/bin rootfs/lib64 rootfs/tmp
	for f in /usr/bin/python3* /bin/sh; do cp -L $f rootfs/usr/bin/$(basename $f); done
	ln -s usr/bin rootfs/bin
	{ echo /usr/lib/python3.[0-9]*; ldd /usr/bin/python3 /bin/sh | grep -o '/[^ ]*\.so[^ ]*' | sort -u; } |
		xargs tar chf - 2>/dev/null | tar xf - -C rootfs
	tar cf rootfs.tar -C rootfs .
	cove image import ./rootfs.tar --name python:3.13-slim >/dev/null
	`

// longRun is an execution that goes on.
const longRun = `setsid cove run bash -c 'echo tick; sleep 60' --timeout 60s >/dev/null 2>&1 &
	until cove ps -q | grep -q .; do :; done`

// asking is an execution that waits for an answer.
const asking = `cove ps -q | xargs -r cove kill >/dev/null
	setsid cove run bash -c 'curl -s -X POST https://upload.example.com/' --policy policy.yaml ` +
	`--timeout 60s >/dev/null 2>&1 &
	until cove approve | grep -q ho_; do :; done`

// denials come again and again.
const denials = `(until [ -e /run/enough ]; do ` +
	`cove run bash -c 'curl -s http://docs.example.com/' --allow api.example.com; done) \
	>/dev/null 2>&1 &`

// ticks come on every terminal, again and again.
const ticks = `(until [ -e /run/enough ]; do
	cove exec brave-otter -- sh -c 'for t in /dev/pts/[0-9]*; do echo tick >$t; done'; done) >/dev/null 2>&1 &`

// enough ends what comes again and again.
const enough = `touch /run/enough
	while cove ps -q | grep -q .; do :; done`

const (
	installs    = "TestInstall runs it, into a directory of its own"
	makeTest    = "make test runs these tests, with what they need"
	needsDocker = "needs Docker's daemon, with which test/egress runs it"
	sshRuns     = "TestSSH runs these, with an sshd"
	uploadRuns  = "TestUpload runs these, with an sshd"
)
