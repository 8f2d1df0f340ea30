//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/cove-sandbox/cove/test/bench/result"
)

const (
	coveBuild   = "cove image build"
	coveCaches  = "cove image build --tool-caches"
	dockerBuild = "docker build"
	dockerKit   = "docker build, with BuildKit"
	podmanBuild = "podman build"
	coveApt     = "cove run --root"
	coveHost    = "cove, on the machine's toolchain"
	coveImage   = "cove, on an image of 1 GiB"

	goCold, goChanged     = "build of a Go project", "build of a Go project after a change of one line"
	goMounted             = "build of a Go project after a change of one line, whose Dockerfile mounts a cache"
	nodeCold, nodeChanged = "build of a Node project", "build of a Node project after a change of one line"
	aptInstall            = "apt-get install of git, from apt's own cache"
	imageStart            = "start on an image"

	toolsImage = "bench-tools"
)

// imageProject is a project whose image is built.
type imageProject struct {
	cold, changed string // names of scenarios; no cold one if empty
	files         map[string]string
	source        string // the file that changes
	links         string // a directory that is linked into the context; empty is none
	mounts        bool   // a RUN mounts a cache
}

var goProject = goProjectOf(goCold, goChanged, "")

var goMountedProject = goProjectOf("", goMounted, "--mount=type=cache,target=/root/.cache/go-build ")

// goProjectOf is a project of which flags are those of the RUN that compiles it.
func goProjectOf(cold, changed, flags string) imageProject {
	return imageProject{cold: cold, changed: changed, source: "main.go", mounts: flags != "", files: map[string]string{
		"go.mod": "module bench\n\ngo 1.19\n",
		"main.go": "package main\n\nimport (\n\t\"encoding/json\"\n\t\"net/http\"\n)\n\nfunc main() {\n" +
			"\thttp.HandleFunc(\"/\", func(w http.ResponseWriter, r *http.Request) { json.NewEncoder(w).Encode(r.Header) })\n" +
			"\thttp.ListenAndServe(\":8080\", nil)\n}\n",
		"Dockerfile": "FROM " + toolsImage + " AS build\nWORKDIR /src\nCOPY go.mod ./\nCOPY . .\nRUN " + flags +
			"CGO_ENABLED=0 go build -o /out/app .\nFROM scratch\nCOPY --from=build /out/app /app\n" +
			"ENTRYPOINT [\"/app\"]\n"}}
}

var nodeProject = imageProject{cold: nodeCold, changed: nodeChanged, source: "server.js", links: "npm",
	files: map[string]string{"server.js": "require('express')().listen(8080)\n",
		"Dockerfile": "FROM " + toolsImage + "\nWORKDIR /app\nCOPY package.json package-lock.json ./\nCOPY npm /npm\n" +
			"RUN npm " + ciArgs + " --offline --cache /npm && rm -r /npm\nCOPY server.js ./\nRUN node --check server.js\n" +
			"CMD [\"node\", \"server.js\"]\n"}}

// write makes the directory of a project.
func (p imageProject) write(b *build, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, text := range p.files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	if p.links == "" {
		return nil
	}
	return command(context.Background(), nil, []string{"cp", "-al", filepath.Join(b.dir, p.links),
		filepath.Join(b.project(), "package.json"), filepath.Join(b.project(), "package-lock.json"), dir})
}

// scenarios are builds of a project from nothing, and after a change of one line.
func (p imageProject) scenarios(b *build, builders []builder, rounds int) ([]scenario, error) {
	var all []scenario
	for _, cold := range []bool{true, false} {
		name, flags := p.changed, []string(nil)
		if cold {
			name, flags = p.cold, []string{"--no-cache"}
		}
		if name == "" {
			continue
		}
		dir := filepath.Join(b.dir, strings.ReplaceAll(name, " ", "-"))
		if err := p.write(b, dir); err != nil {
			return nil, err
		}
		var changes atomic.Int64
		change := func(context.Context) error {
			f, err := os.OpenFile(filepath.Join(dir, p.source), os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(f, "// %d\n", changes.Add(1))
			return errors.Join(err, f.Close())
		}
		s := scenario{part: "builds", name: name, load: one, rounds: max(rounds/6, 5), budget: 12 * budget}
		for _, by := range builders {
			if by.only != "" && by.only != name {
				continue
			}
			if p.mounts && by.why == "" && by.unmounted {
				by.why = "it mounts no caches"
			}
			line := slices.Concat(by.line, flags, []string{"-t", "bench-" + strings.ReplaceAll(p.source, ".", "-"), dir})
			s.contenders = append(s.contenders, contender{name: by.name, prepare: change, why: by.why,
				run: func(ctx context.Context) error { return command(ctx, by.env, line) }})
		}
		all = append(all, s)
	}
	return all, nil
}

// builder makes images of Dockerfiles.
type builder struct {
	name string
	env  []string
	line []string // before the flags of a build
	why  string   // there is none

	unmounted bool   // it knows no caches that are mounted
	only      string // the scenario that it is for; empty: all
}

// buildersOf gives each builder the image that builds begin with.
func buildersOf(ctx context.Context, b *build, s *server, cove, archive string, docker peers) []builder {
	podman := []string{"podman", "--root", filepath.Join(b.dir, "podman-builds"), "--runroot",
		filepath.Join(b.dir, "podman-builds-run"), "--cgroup-manager", "cgroupfs", "--events-backend", "none", "--runtime",
		"runc"}
	plugins, err := buildx(ctx)
	noKit := docker.why["docker run"]
	if noKit == "" && err != nil {
		noKit = "its plugin buildx cannot be built here: " + err.Error()
	}
	build := []string{"docker", "build", "--quiet", "--network=none"}
	all := []builder{
		{name: dockerBuild, env: append(docker.environ(), "DOCKER_BUILDKIT=0"), line: build, why: docker.why["docker run"],
			unmounted: true},
		{name: podmanBuild, env: os.Environ(), why: docker.why["podman run"],
			line: append(slices.Clone(podman), "build", "--quiet", "--network=none", "--layers")},
		{name: coveBuild, env: s.environ(), line: []string{cove, "image", "build"}},
		{name: dockerKit, env: append(docker.environ(), "DOCKER_BUILDKIT=1", "DOCKER_CONFIG="+plugins), line: build,
			why: noKit},
		{name: coveCaches, env: s.environ(), line: []string{cove, "image", "build", "--tool-caches"}, only: goChanged},
	}
	for i, importing := range [][]string{{"docker", "import", archive, toolsImage},
		append(slices.Clone(podman), "import", "--quiet", archive, toolsImage),
		{cove, "image", "import", "tar:" + archive, "--name", toolsImage}} {
		if all[i].why != "" {
			continue
		}
		if err := command(ctx, all[i].env, importing); err != nil {
			all[i].why = err.Error()
		}
	}
	return all
}

// buildScenarios measure builds of images beside Docker's, packages that are installed inside, and the start on a large
// image. why says that there is no project of npm.
func buildScenarios(ctx context.Context, b *build, docker peers, rounds int, why error) ([]scenario, error) {
	cove, err := binaryIn(b.bin, "cove")
	if err != nil {
		return nil, err
	}
	s, err := b.server(ctx, "COVE_SANDBOX_POOL_SIZE=0")
	if err != nil {
		return nil, err
	}
	kept, err := toolsArchive(ctx)
	archive := filepath.Join(b.dir, "tools.tar") // a home is refused
	if err == nil {
		err = command(ctx, nil, []string{"cp", "--reflink=auto", kept, archive})
	}
	if err != nil {
		return []scenario{{part: "builds", name: goCold, load: one, contenders: []contender{
			{name: coveBuild, why: "there is no image to build on: " + err.Error()}}}}, nil
	}
	builders := buildersOf(ctx, b, s, cove, archive, docker)
	projects := []imageProject{goMountedProject} // the shorter ones first, while there is time for all rounds
	if why == nil {
		projects = append(projects, nodeProject)
	}
	projects = append(projects, goProject)
	var all []scenario
	for _, project := range projects {
		more, err := project.scenarios(b, builders, rounds)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	install, err := aptScenario(ctx, b, s, cove, archive, rounds)
	if err != nil {
		return nil, err
	}
	onImage := snippet("bash", "echo 1")
	onImage.Image = toolsImage
	return append(all, install, scenario{part: "builds", name: imageStart, load: one, rounds: 3 * rounds,
		contenders: []contender{{name: coveHost, run: s.execute("bash", "echo 1")},
			{name: coveImage, run: s.asking(onImage)}}}), nil
}

// toolsArchive returns an archive of a root file system of Debian with Go and npm, and packages that apt can install
// without a network. It is made once, and kept.
func toolsArchive(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "cove-test")
	archive := filepath.Join(cache, "bench-tools-1.tar")
	if _, err := os.Stat(archive); err == nil {
		return archive, nil
	}
	if _, err := exec.LookPath("mmdebstrap"); err != nil {
		return "", err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	err = command(ctx, os.Environ(), []string{"mmdebstrap", "--quiet", "--format=tar", "--variant=apt",
		`--aptopt=Acquire::Languages "none"`, "--include=golang-go,npm", "--skip=cleanup/apt",
		`--customize-hook=chroot "$1" apt-get install --yes --download-only --no-install-recommends git`,
		"bookworm", archive + ".part"})
	if err != nil {
		return "", err
	}
	return archive, os.Rename(archive+".part", archive)
}

// buildxVersion is that of Docker's plugin for builds with BuildKit, which Debian's Docker comes without.
const buildxVersion = "v0.12.1"

// buildx returns a directory of Docker's configuration with the plugin. It is built once, and kept.
func buildx(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "cove-test", "buildx-"+buildxVersion)
	plugin := filepath.Join(dir, "cli-plugins", "docker-buildx")
	if _, err := os.Stat(plugin); err == nil {
		return dir, nil
	}
	env := append(os.Environ(), "CGO_ENABLED=0", "GOBIN="+filepath.Dir(plugin))
	err = command(ctx, env, []string{"go", "install", "github.com/docker/buildx/cmd/buildx@" + buildxVersion})
	if err != nil {
		return "", err
	}
	return dir, os.Rename(filepath.Join(filepath.Dir(plugin), "buildx"), plugin)
}

// aptScenario installs packages that apt has, in a plain chroot on an overlay, and in a sandbox.
func aptScenario(ctx context.Context, b *build, s *server, cove, archive string, rounds int) (scenario, error) {
	root := filepath.Join(b.dir, "root")
	err := command(ctx, nil, []string{"mkdir", root})
	if err == nil {
		err = command(ctx, nil, []string{"tar", "-C", root, "-xf", archive})
	}
	if err != nil {
		return scenario{}, err
	}
	over := filepath.Join(b.dir, "over")
	merged := filepath.Join(over, "merged")
	shell := func(script string) func(context.Context) error {
		return func(ctx context.Context) error {
			return command(ctx, append(os.Environ(), "LC_ALL=C"), []string{"bash", "-ec", script})
		}
	}
	const install = "DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-download --no-install-recommends git"
	settle := shell(fmt.Sprintf("umount -l %s; umount %s; rm -rf %s", merged, over, over))
	return scenario{part: "builds", name: aptInstall, load: one, rounds: max(rounds/6, 5), budget: 6 * budget,
		contenders: []contender{
			{name: result.Plain,
				prepare: shell(fmt.Sprintf("mkdir %[1]s; mount -t tmpfs tmpfs %[1]s; mkdir %[1]s/{upper,work,merged}; "+
					"mount -t overlay overlay -o lowerdir=%[2]s,upperdir=%[1]s/upper,workdir=%[1]s/work %[1]s/merged", over, root)),
				run:    shell("chroot " + merged + " sh -c '" + install + "'"),
				settle: func() error { return settle(context.Background()) }},
			{name: coveApt, run: s.command(cove, "run", "--root", "--image", toolsImage, "--memory", "2G", "--disk", "2G",
				"--cpus", strconv.Itoa(runtime.NumCPU()), "--timeout", "5m", "bash", "-c", install)},
		}}, nil
}
