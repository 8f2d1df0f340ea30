package policy

import (
	"slices"
	"strings"
	"testing"
)

// documented are the names of the files that each tool's documentation says it reads in a checkout.
var documented = map[string]string{
	"GitHub": `.github/workflows/ci.yml .github/actions/x/action.yml action.yml action.yaml .github/dependabot.yml
		.github/dependabot.yaml`,
	"Gitea and Forgejo": ".gitea/workflows/x.yml .forgejo/workflows/x.yml .gitea/actions/x .forgejo/actions/x",
	"GitLab":            ".gitlab-ci.yml .gitlab/ci/x.yml .gitlab/agents/x/config.yaml",
	"Azure Pipelines": `azure-pipelines.yml azure-pipelines.release.yml azure-pipelines/x.yml .azure-pipelines/x.yml
		.vsts-ci.yml`,
	"other pipelines": `.circleci/config.yml .travis.yml bitbucket-pipelines.yml Jenkinsfile Jenkinsfile.release .drone.yml
		.drone.star .woodpecker.yml .woodpecker/x.yaml .buildkite/pipeline.yml appveyor.yml .appveyor.yml .cirrus.yml
		.semaphore/semaphore.yml .tekton/x.yaml .builds/x.yml .build.yml cloudbuild.yaml buildspec.yml
		.teamcity/settings.kts bamboo-specs/bamboo.yml .zuul.yaml zuul.yaml .zuul.d/x.yaml zuul.d/x.yaml
		.harness/pipeline.yaml codefresh.yml .prow.yaml`,
	"code owners": "CODEOWNERS .github/CODEOWNERS docs/CODEOWNERS",

	"hooks":      ".githooks/pre-commit .git-hooks/pre_commit/x.rb",
	"pre-commit": ".pre-commit-config.yaml",
	"prek":       "prek.toml",
	"husky":      ".husky/pre-commit .huskyrc .huskyrc.json .huskyrc.js husky.config.js",
	"lefthook": `lefthook.yml lefthook.yaml lefthook.toml lefthook.json lefthook.jsonc .lefthook.yml .lefthook.toml
		lefthook-local.yml lefthook-local.json .lefthook-local.yml .config/lefthook.yml .lefthook/pre-commit/x.sh
		.lefthook-local/pre-commit/x.sh`,
	"overcommit":       ".overcommit.yml .local-overcommit.yml",
	"simple-git-hooks": ".simple-git-hooks.json .simple-git-hooks.cjs .simple-git-hooks.js simple-git-hooks.json",
	"hk":               "hk.pkl hk.local.pkl .config/hk.pkl",
	"CaptainHook":      "captainhook.json captainhook.config.json",
	"GrumPHP":          "grumphp.yml grumphp.yml.dist grumphp.yaml",

	"git": ".gitmodules .lfsconfig",
	"lint-staged": `.lintstagedrc .lintstagedrc.json .lintstagedrc.mjs lint-staged.config.js .commitlintrc.yaml
		commitlint.config.ts`,
	"direnv": ".envrc .envrc.local sub/.envrc",
	"mise": `mise.toml mise.local.toml mise.ci.toml .mise.toml .mise.local.toml mise/config.toml mise/config.ci.toml
		.mise/config.toml .config/mise.toml .config/mise/config.toml .config/mise/conf.d/x.toml mise-tasks/x .mise-tasks/x
		mise/tasks/x .mise/tasks/x .config/mise/tasks/x .rtx.toml`,
	"asdf":           ".tool-versions",
	"dev containers": ".devcontainer/devcontainer.json .devcontainer/x/devcontainer.json .devcontainer.json",
	"VS Code": `.vscode/tasks.json .vscode/settings.json .vscode/launch.json .vscode/mcp.json .vscode/extensions.json
		packages/a/.vscode/tasks.json x.code-workspace`,
	"JetBrains":     ".idea/runConfigurations/x.xml .idea/workspace.xml .run/x.run.xml .fleet/run.json",
	"Zed":           ".zed/settings.json .zed/tasks.json .zed/debug.json",
	"vim":           ".exrc .vimrc .gvimrc .nvimrc .nvim.lua .lvimrc .lazy.lua .vim/coc-settings.json",
	"Emacs":         ".dir-locals.el .dir-locals-2.el",
	"other editors": "x.sublime-project .helix/config.toml .helix/languages.toml .nova/Tasks/x.json .vs/tasks.vs.json",
	"Claude Code": `.mcp.json .claude/settings.json .claude/settings.local.json .claude/hooks/x.sh .claude/commands/x.md
		.claude/skills/x/SKILL.md .claude/agents/x.md`,
	"Codex":  ".codex/config.toml .codex/hooks.json .agents/skills/x/SKILL.md",
	"Cursor": ".cursor/mcp.json .cursor/hooks.json .cursor/environment.json .cursor/rules/x.mdc",
	"Gemini": `.gemini/settings.json .gemini/commands/x.toml .gemini/extensions/x/gemini-extension.json
		.qwen/settings.json`,
	"OpenCode": "opencode.json opencode.jsonc .opencode/plugin/x.ts",
	"Aider":    ".aider.conf.yml .aider.model.settings.yml",
	"other agents": `.kiro/hooks/x.kiro.hook .roo/mcp.json .kilocode/mcp.json .windsurf/workflows/x.md .amazonq/mcp.json
		.junie/mcp/mcp.json .continue/config.yaml .factory/mcp.json crush.json .github/hooks/x.json`,

	"git directories": "HEAD sub/HEAD s/commondir",
	"git attributes":  ".gitattributes sub/.gitattributes",

	"JavaScript": `.npmrc packages/a/.npmrc .yarnrc .yarnrc.yml .yarn/releases/yarn-4.cjs .yarn/plugins/x.cjs
		.pnpmfile.cjs .pnpmfile.mjs pnpm-workspace.yaml bunfig.toml`,
	"Rust": ".cargo/config.toml .cargo/config rust-toolchain rust-toolchain.toml",
	"JVM": `.mvn/extensions.xml .mvn/jvm.config mvnw mvnw.cmd gradlew gradlew.bat
		gradle/wrapper/gradle-wrapper.jar`,
	"Bazel":            ".bazelrc user.bazelrc .bazeliskrc .bazelversion tools/bazel",
	"Nix":              "flake.nix shell.nix default.nix devenv.nix devenv.yaml devbox.json .flox/env/manifest.toml",
	"Python":           "uv.toml poetry.toml pixi.toml sitecustomize.py .pdbrc",
	"Ruby":             ".bundle/config .irbrc .pryrc",
	".NET":             "Directory.Build.props Directory.Build.targets NuGet.config global.json .config/dotnet-tools.json",
	"debuggers":        ".gdbinit .lldbinit",
	"make and Compose": "GNUmakefile compose.override.yaml docker-compose.override.yml .env .env.local",
	"instructions of agents": `AGENTS.md AGENTS.override.md sub/CLAUDE.md CLAUDE.local.md GEMINI.md QWEN.md .cursorrules
		.windsurfrules .clinerules .clinerules/x.md .goosehints .github/copilot-instructions.md
		.github/instructions/x.instructions.md`,
}

// TestTools: of each tool, every file that its documentation names is in the table, in the sets that its effect is in,
// and no other file of a project is in any.
func TestTools(t *testing.T) {
	file := func(path string) Change { return Change{Path: path, Mode: File} }
	for _, tool := range tools {
		names := strings.Fields(documented[tool.name])
		if len(names) == 0 {
			t.Errorf("no file of %s is tried", tool.name)
		}
		for _, name := range names {
			for set, c := range map[string]struct {
				files []Files
				when  []effect
			}{
				"Restricted": {Restricted, []effect{onForge, onCommand}},
				"Noted":      {Noted, []effect{onEntry, asGit}},
				"Local":      {Local, []effect{onCommand, onEntry}},
				"Asked":      {Asked, []effect{onForge, onCommand, onEntry, asGit, onApply}},
				"Built":      {Built, []effect{onBuild}},
			} {
				if got, want := file(name).In(c.files), slices.Contains(c.when, tool.when); got != want {
					t.Errorf("%s: %s is in %s: %v, want %v", tool.name, name, set, got, want)
				}
			}
		}
		for _, f := range tool.files {
			if _, bad := ParseFiles(strings.TrimSuffix(string(f), "/")); bad != "" {
				t.Errorf("%s: %s: %s", tool.name, f, bad)
			}
			if trimmed := strings.TrimSuffix(string(f), "/**"); strings.Count(trimmed, "*") > 1 {
				t.Errorf("%s: %s has more than one *", tool.name, f)
			}
		}
	}
	for name := range documented {
		if !slices.ContainsFunc(tools, func(t tool) bool { return t.name == name }) {
			t.Errorf("there is no tool %s", name)
		}
	}
	for name := range strings.FieldsSeq(`README.md main.go Makefile package.json package-lock.json src/index.js go.mod
		.gitignore .gitkeep .editorconfig .env.example docs/head.html config/database.yml hooks/useThing.ts src/refs/x.ts
		src/objects/x.ts build.gradle pom.xml Cargo.toml pyproject.toml .github/ISSUE_TEMPLATE/x.md .github/README.md
		run/x.go idea/x vscode/x miser.go envrc.md Dockerfile compose.yaml docs/model.md claude/x.md`) {
		if file(name).In(Asked) || file(name).In(Built) {
			t.Errorf("%s is in the table", name)
		}
	}
	for name, want := range map[string]bool{".vscode": true, "a/.vscode": true, ".github": true, ".config/mise": true,
		"src": false, "a": false, ".vscode/x/y": true} {
		if got := (Change{Path: name, Mode: Symlink}).In(Asked); got != want {
			t.Errorf("a symbolic link %s: %v", name, got)
		}
	}
}

// TestIsGitDirectory: a directory is told by what git looks for in it.
func TestIsGitDirectory(t *testing.T) {
	for names, want := range map[string]bool{
		"HEAD objects refs": true, "HEAD commondir": true, "config objects refs": true, "hooks objects refs": true,
		"HEAD config objects refs hooks": true,
		"":                               false, "HEAD": false, "HEAD objects": false, "objects refs": false,
		"HEAD config hooks": false,
		"commondir config":  false,
	} {
		has := func(name string) bool { return slices.Contains(strings.Fields(names), name) }
		if got := IsGitDirectory(has); got != want {
			t.Errorf("%q: %v", names, got)
		}
	}
	has := func(p string) bool { return slices.Contains([]string{"a/HEAD", "a/objects", "a/refs"}, p) }
	for p, want := range map[string]bool{"a/config": true, "a/hooks/pre-commit": true, "a": false, "b/config": false} {
		if got := InGitDirectory(p, has); got != want {
			t.Errorf("%s: %v", p, got)
		}
	}
}
