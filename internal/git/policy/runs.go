package policy

import (
	"path"
	"strings"
)

// effect says when a file of a checkout runs, or is obeyed.
type effect int

const (
	onForge   effect = iota // by others, once it is pushed
	onCommand               // by the next command of git
	onEntry                 // by a shell, an editor or an agent, once the checkout is entered or opened
	asGit                   // by git, which takes its directory for one of git's own
	onApply                 // by git, which it leads to a program that the owner has configured
	onBuild                 // once the owner builds, installs or opens the project
)

// tool is a program whose files in a checkout run on its owner's machine. A name that ends in "/" is a directory at any
// depth. At most one part of a path has a "*".
type tool struct {
	name  string
	when  effect
	files []Files
}

// tools is the one table of what others, and the owner's own next command, run of a checkout.
var tools = []tool{
	{"GitHub", onForge, []Files{".github/workflows/**", ".github/actions/**", "action.yml", "action.yaml",
		".github/dependabot.yml", ".github/dependabot.yaml"}},
	{"Gitea and Forgejo", onForge, []Files{".gitea/workflows/**", ".forgejo/workflows/**", ".gitea/actions/**",
		".forgejo/actions/**"}},
	{"GitLab", onForge, []Files{".gitlab-ci.yml", ".gitlab-ci.yaml", ".gitlab/ci/**", ".gitlab/agents/**"}},
	{"Azure Pipelines", onForge, []Files{"azure-pipelines*.yml", "azure-pipelines*.yaml", "azure-pipelines/**",
		".azure-pipelines/**", ".vsts-ci.yml"}},
	{"other pipelines", onForge, []Files{".circleci/**", ".travis.yml", "bitbucket-pipelines.yml", "Jenkinsfile",
		"Jenkinsfile.*", ".drone.yml", ".drone.star", ".woodpecker.yml", ".woodpecker.yaml", ".woodpecker/**",
		".buildkite/**", "appveyor.yml", ".appveyor.yml", ".cirrus.yml", ".cirrus.star", ".semaphore/**", ".tekton/**",
		".builds/**", ".build.yml", "cloudbuild.yaml", "cloudbuild.yml", "buildspec.yml", "buildspec.yaml", ".teamcity/**",
		"bamboo-specs/**", ".zuul.yaml", "zuul.yaml", ".zuul.d/**", "zuul.d/**", ".harness/**", "codefresh.yml",
		".prow.yaml"}},
	{"code owners", onForge, []Files{"CODEOWNERS"}},

	{"hooks", onCommand, []Files{".githooks/", ".git-hooks/"}},
	{"pre-commit", onCommand, []Files{".pre-commit-config.yaml", ".pre-commit-config.yml"}},
	{"prek", onCommand, []Files{"prek.toml"}},
	{"husky", onCommand, []Files{".husky/", ".huskyrc*", "husky.config.*"}},
	{"lefthook", onCommand, []Files{"lefthook.*", "lefthook-local.*", ".lefthook*", ".lefthook/", ".lefthook-local/"}},
	{"overcommit", onCommand, []Files{".overcommit*", ".local-overcommit.yml"}},
	{"simple-git-hooks", onCommand, []Files{"simple-git-hooks.*", ".simple-git-hooks.*"}},
	{"hk", onCommand, []Files{"hk*.pkl"}},
	{"CaptainHook", onCommand, []Files{"captainhook*.json"}},
	{"GrumPHP", onCommand, []Files{"grumphp.*"}},

	{"git", onEntry, []Files{".gitmodules", ".lfsconfig"}},
	{"lint-staged", onEntry, []Files{".lintstagedrc*", "lint-staged.config.*", ".commitlintrc*", "commitlint.config.*"}},
	{"direnv", onEntry, []Files{".envrc*"}},
	{"mise", onEntry, []Files{"mise*.toml", ".mise*.toml", "mise/tasks/**", "mise/conf.d/**",
		"mise/config*.toml", ".mise/", ".config/mise/", "mise-tasks/",
		".mise-tasks/", ".rtx*.toml"}},
	{"asdf", onEntry, []Files{".tool-versions"}},
	{"dev containers", onEntry, []Files{".devcontainer/", ".devcontainer.json"}},
	{"VS Code", onEntry, []Files{".vscode/", "*.code-workspace"}},
	{"JetBrains", onEntry, []Files{".idea/", ".run/", ".fleet/", "*.ipr"}},
	{"Zed", onEntry, []Files{".zed/"}},
	{"vim", onEntry, []Files{".exrc", ".vimrc", ".gvimrc", ".nvimrc", ".nvim.lua", ".lvimrc", ".lazy.lua", ".vim/"}},
	{"Emacs", onEntry, []Files{".dir-locals*.el"}},
	{"other editors", onEntry, []Files{"*.sublime-project", ".helix/", ".nova/", ".vs/", ".externalToolBuilders/"}},
	{"Claude Code", onEntry, []Files{".mcp.json", ".claude/"}},
	{"Codex", onEntry, []Files{".codex/", ".agents/"}},
	{"Cursor", onEntry, []Files{".cursor/"}},
	{"Gemini", onEntry, []Files{".gemini/", ".qwen/"}},
	{"OpenCode", onEntry, []Files{"opencode.json*", ".opencode/"}},
	{"Aider", onEntry, []Files{".aider*"}},
	{"other agents", onEntry, []Files{".kiro/", ".roo/", ".kilocode/", ".windsurf/", ".amazonq/", ".junie/", ".continue/",
		".augment/", ".trae/", ".factory/", ".goose/", ".crush.json", "crush.json", ".github/hooks/**"}},

	{"git directories", asGit, []Files{"HEAD", "commondir"}},
	{"git attributes", onApply, []Files{".gitattributes"}},

	{"JavaScript", onBuild, []Files{".npmrc", ".yarnrc*", ".yarn/releases/", ".yarn/plugins/", ".pnpmfile.*",
		"pnpmfile.*", "pnpm-workspace.yaml", "bunfig.toml"}},
	{"Rust", onBuild, []Files{".cargo/", "rust-toolchain*"}},
	{"JVM", onBuild, []Files{".mvn/", "mvnw*", "gradlew*", "gradle/wrapper/", "gradle.properties"}},
	{"Bazel", onBuild, []Files{"*.bazelrc", ".bazeliskrc", ".bazelversion", "tools/bazel"}},
	{"Nix", onBuild, []Files{"flake.nix", "shell.nix", "default.nix", "devenv.*", "devbox.json", ".flox/"}},
	{"Python", onBuild, []Files{"uv.toml", "poetry.toml", "pixi.toml", "sitecustomize.py", ".pdbrc"}},
	{"Ruby", onBuild, []Files{".bundle/", ".irbrc", ".pryrc"}},
	{".NET", onBuild, []Files{"Directory.Build.*", "nuget.config", "global.json", "dotnet-tools.json"}},
	{"debuggers", onBuild, []Files{".gdbinit", ".lldbinit"}},
	{"make and Compose", onBuild, []Files{"GNUmakefile", "compose.override.*",
		"docker-compose.override.*", ".env",
		".env.local"}},
	{"instructions of agents", onBuild, []Files{"AGENTS*.md", "CLAUDE*.md", "GEMINI.md", "QWEN.md", ".cursorrules",
		".windsurfrules", ".clinerules", ".clinerules/", ".goosehints", ".github/copilot-instructions.md",
		".github/instructions/**"}},
}

// Restricted are files that affect what others execute, and permissions: pipelines of the known forges, actions, code
// owners, and configuration of hooks.
var Restricted = filesOf(onForge, onCommand)

// Noted are files that affect what others fetch or execute when they open or enter a checkout; a push that changes
// them gets a warning.
var Noted = filesOf(onEntry, asGit)

// Local are the files of a checkout that programs of its owner execute or obey: hooks, and configuration of editors and
// agents. In a mounted checkout they are read-only.
var Local = filesOf(onCommand, onEntry)

// Asked are the files that apply changes in a checkout on request alone.
var Asked = filesOf(onForge, onCommand, onEntry, asGit, onApply)

// Built are files that programs of the owner execute or obey once the owner builds, installs or opens the project.
var Built = filesOf(onBuild)

func filesOf(effects ...effect) (all []Files) {
	for _, when := range effects {
		for _, t := range tools {
			for _, f := range t.files {
				switch dir, is := strings.CutSuffix(string(f), "/"); {
				case t.when != when:
				case is:
					all = append(all, Files("**/"+dir+"/**"))
				default:
					all = append(all, f)
				}
			}
		}
	}
	return all
}

// GitNames are the entries that tell a directory of git's own.
var GitNames = []string{"HEAD", "commondir", "objects", "refs", "config", "config.worktree", "hooks"}

// IsGitDirectory reports whether git takes a directory with such entries for one of its own, or for the one that the
// file commondir of another leads to. In either, a file decides what the owner's next command of git executes.
func IsGitDirectory(has func(name string) bool) bool {
	return has("HEAD") && has("commondir") || has("objects") && has("refs") &&
		(has("HEAD") || has("config") || has("config.worktree") || has("hooks"))
}

// InGitDirectory reports whether a path lies in a directory of git's own, in a tree in which has asks for paths.
func InGitDirectory(p string, has func(path string) bool) bool {
	for dir := path.Dir(p); ; dir = path.Dir(dir) {
		if IsGitDirectory(func(name string) bool { return has(path.Join(dir, name)) }) {
			return true
		}
		if dir == "." {
			return false
		}
	}
}
