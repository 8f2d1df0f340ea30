package devcontainer

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/compose/merge"
)

// composing evaluates a dev container with files of Compose.
func composing(text string, checkout fs.FS, env map[string]string) (*Effective, error) {
	c := users
	c.Checkout, c.LocalEnv, c.Merge = checkout, env, merge.Files
	return Evaluate(File{".devcontainer/devcontainer.json", []byte(text)}, c)
}

func checkoutOf(files map[string]string) fstest.MapFS {
	all := fstest.MapFS{}
	for name, text := range files {
		all[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return all
}

const ofCompose = `{"dockerComposeFile": "../compose.yml", "service": "app", "remoteEnv": {"B": "file"}}`

// TestCompose: the service is the sandbox, the others are beside it, and each value has its place.
func TestCompose(t *testing.T) {
	files := map[string]string{"compose.yml": `services:
  app:
    build: {context: app, dockerfile: ../Dockerfile, args: {X: "1", Y: null}, network: host, privileged: true}
    environment: {A: compose, B: compose, "LD_PRELOAD": x.so}
    env_file: [a.env, {path: gone.env, required: false}]
    user: ada
    working_dir: /src/sub
    volumes: ["./:/src", "/etc:/etc:ro", "data:/data"]
    depends_on: {db: {condition: service_healthy}, migrate: {condition: service_completed_successfully}}
    mem_limit: 1g
    links: ["cache:redis"]
  db:
    image: postgres:15
    user: "70:70"
    command: postgres -c 'a b'
    entrypoint: /start
    stop_signal: SIGINT
    working_dir: /var/lib
    environment: ["PASSWORD=${PASSWORD}", "HOST"]
    expose: [5433, "53/udp"]
    ports: ["127.0.0.1:1:5432"]
    healthcheck: {test: [CMD, ready, "a\nb"], interval: 2s, retries: 4, start_period: 1m}
    deploy: {resources: {limits: {memory: 100M}}}
  cache: {image: redis, profiles: [more], healthcheck: {disable: true}}
  other: {image: other}
  kept: {image: kept, profiles: [more]}
  migrate: {image: migrate}
volumes: {data: {}}
`, "a.env": "A=env\nC=env\n", ".env": "PASSWORD=secret\n", "Dockerfile": "FROM x"}
	e, err := composing(ofCompose, checkoutOf(files), map[string]string{})
	if err != nil || e.Err() != nil {
		t.Fatal(err, e.Err())
	}
	if got, want := fmt.Sprintf("%+v %v %s %s %d", *e.Build, e.Env, e.User, e.WorkDir, e.Limits.Memory>>20),
		"{Dockerfile:Dockerfile Context:app Args:map[X:1] Target:} map[A:compose B:file C:env] ada "+
			"/workspace/sub 1024"; got !=
		want {
		t.Errorf("the sandbox is %s\nwant %s", got, want)
	}
	var names []string
	for _, s := range e.Services {
		names = append(names, s.Name)
	}
	if got := strings.Join(names, " "); got != "cache db other" {
		t.Fatalf("the services are %s", got)
	}
	db := e.Services[1]
	want := `FROM postgres:15
USER 70:70
WORKDIR /var/lib
ENTRYPOINT ["/start"]
CMD []
STOPSIGNAL SIGINT
HEALTHCHECK --interval=2s --start-period=1m0s --retries=4 CMD ["ready","a\nb"]
`
	if got := string(db.Instructions(db.Image)); got != want {
		t.Errorf("the image of db is\n%swant\n%s", got, want)
	}
	if got, want := fmt.Sprintf("%q %v %v %d", db.Args, db.Env, db.Ports, db.Limits.Memory>>20),
		`["postgres" "-c" "a b"] map[PASSWORD:secret] [5432 5433] 100`; got != want {
		t.Errorf("db is %s, want %s", got, want)
	}
	if got := e.Services[0].Over; !slices.Equal(got, []string{"HEALTHCHECK NONE"}) {
		t.Errorf("cache: %q", got)
	}
	var said []string
	for _, v := range e.Values {
		said = append(said, v.Key+" = "+v.Value+" "+v.From)
	}
	for _, l := range e.LeftOut {
		said = append(said, fmt.Sprintf("%s left out %s:%d", l.Key, l.In(e), l.Line))
	}
	for _, want := range []string{
		"services.app.environment.A = compose compose.yml:4", "services.app.environment.C = env a.env:2",
		"remoteEnv.B = file .devcontainer/devcontainer.json:1", "user = ada compose.yml:6",
		"workspaceFolder = /workspace/sub compose.yml:7", "memory = 1G compose.yml",
		"services.db.port = 5432 compose.yml:21", "services.db.environment.PASSWORD = secret compose.yml:19",
		"services.app.build.args.Y left out compose.yml:3", "services.app.build.privileged left out compose.yml:3",
		"services.app.build.network left out compose.yml:3", "services.app.environment.LD_PRELOAD left out compose.yml:4",
		"services.app.volumes /etc left out compose.yml:8", "services.app.volume /data = on the sandbox's disk compose.yml:8",
		"services.db.environment.HOST left out compose.yml:19", "services.db.expose 53/udp left out compose.yml:20",
		"port = 1:db:5432 compose.yml:21", "services.kept left out compose.yml:26",
		"services.migrate left out compose.yml:9",
	} {
		if !slices.Contains(said, want) {
			t.Errorf("not said: %s\n%s", want, strings.Join(said, "\n"))
		}
	}
	for _, s := range said {
		if strings.HasPrefix(s, "services.app.environment.B =") || strings.HasPrefix(s, "services.cache left out") {
			t.Errorf("said: %s", s)
		}
	}
	for _, name := range []string{"compose.yml", "a.env", ".env"} {
		if _, is := e.Read[name]; !is {
			t.Errorf("%s does not belong to what is agreed to", name)
		}
	}
	if !slices.Contains(e.Refers, "Dockerfile") {
		t.Errorf("the Dockerfile does not belong to it: %v", e.Refers)
	}
	e, err = composing(ofCompose, checkoutOf(files), map[string]string{"PASSWORD": "given", "HOST": "h"})
	if err != nil || fmt.Sprint(e.Services[1].Env) != "map[HOST:h PASSWORD:given]" {
		t.Errorf("%v, %v", e.Services, err)
	}
}

// TestComposeWidens: what would widen a sandbox or a service is left out by its name, with its place.
func TestComposeWidens(t *testing.T) {
	for key, value := range map[string]string{
		"privileged": "true", "cap_add": "[SYS_ADMIN]", "security_opt": "[seccomp:unconfined]",
		"devices":      "[/dev/mem:/dev/mem]",
		"network_mode": "host", "pid": "host", "ipc": "host", "uts": "host", "userns_mode": "host", "cgroup": "host",
		"cgroup_parent": "/", "sysctls": "{a: 1}", "volumes": "[/:/host]", "volumes_from": "[app]", "tmpfs": "/proc/x",
		"device_cgroup_rules": `["a *:* rwm"]`, "gpus": "all", "runtime": "runc", "use_api_socket": "true",
		"extra_hosts": "[a:1.2.3.4]", "dns": "1.1.1.1", "ulimits": "{nofile: 1}", "oom_score_adj": "-1000",
		"group_add": "[docker]", "shm_size": "1g", "secrets": "[s]", "post_start": "[{command: x, privileged: true}]",
		"provider": "{type: x}", "networks": "{n: {aliases: [x]}}", "storage_opt": "{size: 1g}", "platform": "linux/arm64",
	} {
		for _, of := range []string{"app", "db"} {
			text := "services:\n  app:\n    image: a\n  db:\n    image: b\n"
			text = strings.Replace(text, "  "+of+":\n", "  "+of+":\n    "+key+": "+value+"\n", 1)
			text += "secrets: {s: {file: x}}\nnetworks: {n: {}}\n"
			e, err := composing(ofCompose, checkoutOf(map[string]string{"compose.yml": text}), nil)
			if err != nil {
				t.Errorf("%s: %v", text, err)
				continue
			}
			line := map[string]int{"app": 3, "db": 5}[of]
			if !slices.ContainsFunc(e.LeftOut, func(l LeftOut) bool {
				return strings.HasPrefix(l.Key, "services."+of+"."+key) && l.File == "compose.yml" && l.Line == line && l.Why != ""
			}) {
				t.Errorf("%s of %s is not left out: %+v", key, of, e.LeftOut)
			}
		}
	}
}

// TestComposeVolumes: volumes and directories in memory are those of each service alone, and begin empty.
func TestComposeVolumes(t *testing.T) {
	e, err := composing(ofCompose, checkoutOf(map[string]string{"compose.yml": `services:
  app:
    image: a
    volumes: [".:/src", "modules:/src/node_modules", "/cache", {type: tmpfs, target: /fast, tmpfs: {size: 64m}}]
    tmpfs: ["/run:size=1m", "/scratch:size=2m,mode=1777"]
  db:
    image: b
    volumes: ["modules:/m", "data:/var/lib/db", "there:/there", {type: bind, source: /etc, target: /host}]
    tmpfs: /small:size=some
volumes: {modules: {}, data: {driver_opts: {type: none, o: bind, device: /etc}}, there: {external: true}}
`}), nil)
	if err != nil || len(e.Services) != 1 {
		t.Fatal(err, e)
	}
	want := []cove.Volume{{Target: "/workspace/node_modules"}, {Target: "/cache"},
		{Target: "/fast", Memory: true, Size: 64 << 20}, {Target: "/scratch", Memory: true, Size: 2 << 20}}
	if !slices.Equal(e.Volumes, want) {
		t.Errorf("%+v", e.Volumes)
	}
	if got := e.Services[0].Volumes; !slices.Equal(got, []cove.Volume{{Target: "/m"}, {Target: "/var/lib/db"},
		{Target: "/there"}}) {
		t.Errorf("of db: %+v", got)
	}
	var said []string
	for _, l := range e.LeftOut {
		said = append(said, l.Key+": "+l.Why)
	}
	for _, want := range []string{"services.db.volumes modules: app has it, too, and sandboxes share no files",
		"services.db.volumes /var/lib/db of data: what is elsewhere is not attached",
		"services.db.volumes /there of there: what is elsewhere is not attached",
		"services.db.volumes /host: ", "services.db.tmpfs /small: its size is none"} {
		if !strings.Contains(strings.Join(said, "\n"), want) {
			t.Errorf("not said: %s\n%s", want, strings.Join(said, "\n"))
		}
	}
}

// TestComposeRefused: files that are not of the repository, or that describe what cannot be, are errors with a place.
func TestComposeRefused(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("SECRET=of the host"), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	app := func(more string) string { return "services: {app: {image: a, " + more + "}}" }
	for name, c := range map[string]struct {
		json, compose string
		link          string // to the secret
		code          cove.Code
	}{
		"no service": {json: `{"dockerComposeFile": "../compose.yml"}`, compose: app(""), code: cove.InvalidArgument},
		"not there":  {json: `{"dockerComposeFile": "gone.yml", "service": "app"}`, code: cove.NotFound},
		"no such service": {json: `{"dockerComposeFile": "../compose.yml", "service": "x"}`, compose: app(""),
			code: cove.InvalidArgument},
		"out": {json: `{"dockerComposeFile": "../../compose.yml", "service": "app"}`,
			code: cove.InvalidArgument},
		"absolute":         {json: `{"dockerComposeFile": "` + secret + `", "service": "app"}`, code: cove.InvalidArgument},
		"a link":           {link: "compose.yml", code: cove.Forbidden},
		"a link of .env":   {link: ".env", compose: app(""), code: cove.Forbidden},
		"a link of an env": {link: "a.env", compose: app("env_file: a.env"), code: cove.Forbidden},
		"an env out":       {compose: app("env_file: ../a.env"), code: cove.InvalidArgument},
		"an absolute env":  {compose: app("env_file: " + secret), code: cove.InvalidArgument},
		"no env":           {compose: app("env_file: gone.env"), code: cove.NotFound},
		"a build out":      {compose: "services: {app: {build: ../..}}", code: cove.InvalidArgument},
		"a build elsewhere": {compose: "services: {app: {build: 'https://example.com/x.git'}}",
			code: cove.InvalidArgument},
		"a Dockerfile out": {compose: "services: {app: {build: {context: ., dockerfile: /etc/passwd}}}",
			code: cove.InvalidArgument},
		"an inline one":  {compose: "services: {app: {build: {dockerfile_inline: FROM x}}}", code: cove.Unsupported},
		"no image":       {compose: "services: {app: {user: x}}", code: cove.InvalidArgument},
		"of the machine": {compose: "services: {app: {image: 'dir:/etc'}}", code: cove.Unsupported},
		"of the host":    {compose: "services: {app: {image: a}, db: {image: host}}", code: cove.Unsupported},
		"a name":         {compose: "services: {app: {image: a}, d_b: {image: b}}", code: cove.Unsupported},
		"a user": {compose: `services: {app: {image: a}, db: {image: b, user: "x\nRUN y"}}`,
			code: cove.InvalidArgument},
		"a directory": {compose: `services: {app: {image: a}, db: {image: b, working_dir: "/x\nRUN y"}}`,
			code: cove.InvalidArgument},
		"an image": {compose: `services: {app: {image: a}, db: {image: "b\nRUN y", user: x}}`,
			code: cove.InvalidArgument},
		"a dependency": {compose: app("depends_on: [gone]"), code: cove.InvalidArgument},
		"runServices": {json: strings.Replace(ofCompose, `"service"`, `"runServices": ["x"], "service"`, 1),
			compose: app(""),
			code:    cove.InvalidArgument},
		"a file of others": {compose: app("extends: {file: x.yml, service: app}"), code: cove.Unsupported},
		"an alias":         {compose: "a: &a [*a]", code: cove.TooLarge},
	} {
		for _, f := range []string{"compose.yml", ".env", "a.env"} {
			os.Remove(filepath.Join(dir, f))
		}
		if c.compose != "" {
			if err := os.WriteFile(filepath.Join(dir, "compose.yml"), []byte(c.compose), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if c.link != "" {
			if err := os.Symlink(secret, filepath.Join(dir, c.link)); err != nil {
				t.Fatal(err)
			}
		}
		if c.json == "" {
			c.json = ofCompose
		}
		e, err := composing(c.json, root.FS(), nil)
		if err == nil {
			err = e.Err()
		}
		if cove.ErrorCode(err) != c.code || err != nil && strings.Contains(err.Error(), "of the host") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestComposeDigest: what is agreed to is the content of each file that says a value.
func TestComposeDigest(t *testing.T) {
	files := map[string]string{"compose.yml": "services: {app: {image: a, env_file: a.env}}", "a.env": "A=1"}
	digest := func() string {
		e, err := composing(ofCompose, checkoutOf(files), nil)
		if err != nil {
			t.Fatal(err)
		}
		return Digest(File{}, e.Read)
	}
	seen := []string{digest()}
	for name, text := range map[string]string{"compose.yml": files["compose.yml"] + "\n", "a.env": "A=2", ".env": "B=1"} {
		files[name] = text
		if d := digest(); slices.Contains(seen, d) {
			t.Errorf("a change of %s is not another content", name)
		} else {
			seen = append(seen, d)
		}
	}
}
