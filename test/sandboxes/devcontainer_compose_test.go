//go:build linux

package sandboxes

import (
	"os"
	"strings"
)

// databasesOfCompose: the service of two files of Compose is the sandbox of a dev container, and the databases are
// beside it by the names that the files give them.
func (l *lab) databasesOfCompose() {
	t := l.t
	for _, dir := range []string{"src/.devcontainer", "src/cache"} {
		if err := os.MkdirAll(l.in(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	l.write("src/.env", "DATA=/var/lib/postgresql/data\nUSER_OF_DB=app\n")
	l.write("src/app.env", "FROM_FILE=of the file\nSTAGE=lost\n")
	l.write("src/cache/Dockerfile", "FROM databases:1\nUSER redis\nEXPOSE 6379\n")
	l.write("src/compose.yml", `services:
  app:
    image: nobody/has:this
    env_file: app.env
    environment: {STAGE: base, DB_USER: "${USER_OF_DB}"}
  db: &db
    image: databases:1
    user: postgres
    entrypoint: ["sh", "-c"]
    command:
      - '[ -e $$DATA/PG_VERSION ] || initdb -U ${USER_OF_DB} -A trust -D $$DATA >&2; exec postgres -D $$DATA -k /tmp'
    environment: [DATA]
    privileged: true
    healthcheck:
      test: pg_isready -q -h 127.0.0.1
      interval: 300ms
    volumes: [data:/var/lib/postgresql/data]
    ports: ["5432:5432"]
  cache:
    build: cache
    working_dir: /var/lib/redis
    entrypoint: redis-server --appendonly yes
    volumes: ["/var/lib/redis", "more:/extra"]
    tmpfs: /fast:size=1m
  unused:
    <<: *db
volumes: {data: {}}
`)
	l.write("src/.devcontainer/compose.yml", `services:
  app:
    image: databases:1
    user: dev
    command: sleep infinity
    network_mode: service:db
    volumes: ["..:/workspaces/src:cached"]
    environment: {STAGE: dev}
    depends_on: [db]
`)
	l.write("src/.devcontainer/devcontainer.json", `{
	"dockerComposeFile": ["../compose.yml", "compose.yml"],
	"service": "app",
	"runServices": ["cache"],
	"workspaceFolder": "/workspaces/src/cache",
	"postCreateCommand": "psql -qtA -h db -U $DB_USER postgres -c 'create table t (word text)'",
}`)
	explained := l.must("cove", "devcontainer", "explain", l.in("src"))
	for _, want := range []string{
		"services.app.environment.STAGE dev .devcontainer/compose.yml:8",
		"services.app.environment.FROM_FILE of the file app.env:1",
		"services.app.environment.DB_USER app compose.yml:5",
		"services.db.user postgres compose.yml:8",
		"services.cache.build cache by cache/Dockerfile compose.yml:20",
		"services.db.port 5432 compose.yml:18",
		"workspaceFolder /workspace/cache .devcontainer/devcontainer.json:5",
		"services.db.privileged it would take the wall away compose.yml:13",
		"services.app.network_mode a sandbox has a network of its own, and reaches services by their names " +
			".devcontainer/compose.yml:6",
	} {
		if got := strings.Join(strings.Fields(explained), " "); !strings.Contains(got, want) {
			t.Errorf("explain does not say %q:\n%s", want, explained)
		}
	}
	if strings.Contains(explained, "unused") {
		t.Errorf("explain has the service that is not run:\n%s", explained)
	}
	if got := l.must("cove", "devcontainer", "build", "--workspace-folder", l.in("src")); got != "databases:1\n" {
		t.Errorf("build printed %q", got)
	}
	if all := l.must("cove", "image", "list"); !strings.Contains(all, "-db-service:") ||
		!strings.Contains(all, "-cache-service:") {
		t.Errorf("the images of services are not built:\n%s", all)
	}
	up := []string{"cove", "devcontainer", "up", "--workspace-folder", l.in("src"), "--name", "shop"}
	if got := l.must(up...); got != "shop\n" {
		t.Fatalf("up printed %q", got)
	}
	inside := func(script string) string {
		t.Helper()
		return strings.Join(strings.Fields(l.must("cove", "devcontainer", "exec", "--workspace-folder", l.in("src"),
			"sh", "-ec", script)), " ")
	}
	if got := inside(`id -un; pwd; echo "$STAGE $FROM_FILE"`); got != "dev /workspace/cache dev of the file" {
		t.Errorf("inside: %q", got)
	}
	const use = `psql -qtA -h db -U app postgres -c "insert into t values ('kept'); select count(*), max(word) from t"; ` +
		`redis-cli -h cache incr starts`
	if got := inside(use); got != "1|kept 1" {
		t.Errorf("the databases say %q", got)
	}
	for service, user := range map[string]string{"shop.db": "postgres\n", "shop.cache": "redis\n"} {
		if got := l.must("cove", "exec", service, "--", "id", "-un"); got != user {
			t.Errorf("%s runs as %q", service, got)
		}
	}
	const extra = `touch /fast/f; cat /extra/f 2>&1; echo kept > /extra/f; stat -c %U /extra /var/lib/redis`
	if got := l.must("cove", "exec", "shop.cache", "--", "sh", "-c", extra); !strings.HasSuffix(got, "\nredis\nredis\n") {
		t.Errorf("the volumes of cache are %q", got)
	}
	l.must("cove", "devcontainer", "stop", "--workspace-folder", l.in("src"))
	l.must(up[:len(up)-2]...)
	if got := inside(use); got != "2|kept 2" {
		t.Errorf("after a stop: %q", got)
	}
	if got := l.must("cove", "exec", "shop.cache", "--", "sh", "-c", "ls /fast; "+extra); got != "kept\nredis\nredis\n" {
		t.Errorf("the volumes of cache are %q after a stop", got)
	}
	// Another content is another question: that of a file of variables, too.
	l.write("src/app.env", "FROM_FILE=other\n")
	if _, said, _ := l.at(up[:len(up)-2]...); !strings.Contains(said, "has changed since") {
		t.Errorf("after a change of a file of variables: %s", said)
	}
	l.must("cove", "devcontainer", "down", "--workspace-folder", l.in("src"), "--yes")
}
