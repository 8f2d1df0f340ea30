package sandboxes

import (
	"os"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/test/debian"
)

// TestDatabasesBeside: PostgreSQL and Redis, as Debian packages them, are beside a sandbox: as services that are asked
// for, and as those of Compose files.
func TestDatabasesBeside(t *testing.T) {
	l := newLab(t)
	l.withDebian()
	l.buildsDatabases()
	t.Run("services", func(t *testing.T) { l.of(t).databasesAsked() })
	t.Run("compose", func(t *testing.T) { l.of(t).databasesOfCompose() })
}

// buildsDatabases builds the image databases:1.
func (l *lab) buildsDatabases() {
	l.t.Helper()
	l.builds("databases", `FROM debian
RUN apt-get -q update && apt-get -q install -y --no-install-recommends redis-server postgresql \
	&& rm -rf /var/lib/apt/lists && ln -s /usr/lib/postgresql/*/bin/* /usr/local/bin/ \
	&& chown postgres /var/lib/postgresql && useradd -m dev
`)
}

// TestDatabasesWithoutRoot: so it is for an ordinary user, and a service whose image has no user is root inside where
// its sandbox is.
func TestDatabasesWithoutRoot(t *testing.T) {
	if os.Getenv("COVE_TEST_LONG") == "" {
		t.Skip("TestServicesWithoutRoot has the same services, without databases: set COVE_TEST_LONG=1")
	}
	made := debian.Root(t)
	l := newLab(t)
	u := l.asUser(subordinate)
	l.must("tar", "-C", made, "-cf", l.in("root.tar"), ".")
	l.must("mkdir", u.in("root"))
	l.must("cp", "-r", made+"/etc", u.in("root"))
	u.must("cove", "image", "import", "tar:"+l.in("root.tar"), "--name", "debian")
	u.buildsDatabases()
	u.databasesAsked()
	u.builds("plain-redis", "FROM databases:1\nEXPOSE 6379\nWORKDIR /var/lib/redis\nCMD redis-server --appendonly yes\n")
	u.must("cove", "new", "--empty", "--name", "shop", "--image", "plain-redis:1", "--no-attach", "--root", "--service",
		"cache=plain-redis:1")
	u.must("cove", "exec", "shop", "--", "redis-cli", "-h", "cache", "set", "word", "kept")
	if out := u.must("cove", "exec", "shop.cache", "--", "id", "-u"); out != "0\n" {
		t.Errorf("the service is the user %s", out)
	}
	u.must("cove", "stop", "shop")
	u.must("cove", "start", "shop")
	if out := u.must("cove", "exec", "shop", "--", "redis-cli", "-h", "cache", "get", "word"); out != "kept\n" {
		t.Errorf("after a stop: %q", out)
	}
}

// of is the lab of a part of its test.
func (l *lab) of(t *testing.T) *lab {
	part := *l
	part.t = t
	return &part
}

// builds builds the image NAME:1, in a network of Debian's packages.
func (l *lab) builds(name, dockerfile string) {
	l.t.Helper()
	if err := os.MkdirAll(l.in(name), 0o755); err != nil {
		l.t.Fatal(err)
	}
	l.write(name+"/Dockerfile", dockerfile)
	args := []string{"cove", "image", "build", "-t", name + ":1", "--memory", "1G", "--network", "limited"}
	for _, host := range debian.Hosts(l.t, l.in("root")) {
		args = append(args, "--allow", host)
	}
	l.must(append(args, l.in(name))...)
}

// databasesAsked: each database runs as the user of its image and is ready by its check or its port; clients in the
// sandbox use them by name, and their data outlive a stop.
func (l *lab) databasesAsked() {
	t := l.t
	l.builds("svc-postgres", `FROM databases:1
USER postgres
EXPOSE 5432
HEALTHCHECK --interval=300ms CMD pg_isready -q -h 127.0.0.1
ENV DATA=/var/lib/postgresql/data
CMD ["sh", "-c", "[ -d $DATA ] || initdb -U app -A trust -D $DATA >&2; exec postgres -D $DATA -k /tmp"]
`)
	l.builds("svc-redis", `FROM svc-postgres:1
USER redis
WORKDIR /var/lib/redis
HEALTHCHECK NONE
EXPOSE 6379
ENTRYPOINT ["redis-server", "--appendonly", "yes"]
CMD []
`)
	l.must("cove", "new", "--empty", "--name", "shop", "--image", "svc-postgres:1", "--no-attach",
		"--service", "db=svc-postgres:1", "--service", "cache=svc-redis:1", "--service-port", "cache=6379")
	inside := func(script string) string {
		t.Helper()
		return strings.Join(strings.Fields(l.must("cove", "exec", "shop", "--", "sh", "-ec", script)), " ")
	}
	const sql = `psql -qtA -h db -U app postgres -c `
	if got := inside(sql + `'create table t (word text); insert into t values (version()), (current_user)'; ` + sql +
		`"select count(*), max(word) from t where word like 'PostgreSQL %' or word = 'app'"` +
		`; redis-cli -h cache set word kept; redis-cli -h cache get word`); !strings.HasPrefix(got, "2|") ||
		!strings.HasSuffix(got, " OK kept") {
		t.Errorf("%q", got)
	}
	for service, user := range map[string]string{"shop.db": "postgres\n", "shop.cache": "redis\n"} {
		if got := l.must("cove", "exec", service, "--", "id", "-un"); got != user {
			t.Errorf("%s runs as %q", service, got)
		}
	}
	l.must("cove", "stop", "shop")
	l.must("cove", "start", "shop")
	if got := inside(sql + `'select count(*) from t'; redis-cli -h cache get word`); got != "2 kept" {
		t.Errorf("after a stop: %q", got)
	}
	if log := l.must("cove", "network", "log", "--host", "db"); !strings.Contains(log, "tcp://db:5432") {
		t.Errorf("the log has %s", log)
	}
	l.must("cove", "destroy", "--yes", "shop")
}
