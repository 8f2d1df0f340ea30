package archtest

import "strings"

const module = "github.com/cove-sandbox/cove"

// layer is a floor of the house. A package imports only packages of lower
// floors. The gaps leave room for the two floors that are split in two.
type layer int

const (
	vocabulary layer = 0  // 0: the words, standard library only
	leaf       layer = 1  // 0: leaf helpers, one idea each
	contract   layer = 10 // 1: contracts and pure decisions
	adapter    layer = 20 // 2: one technology each
	heart      layer = 30 // 3: the sandbox's life
	edge       layer = 40 // 4: HTTP, on both sides
	wiring     layer = 50 // 5: the only code that names concrete types
	process    layer = 60 // 6: process entry
	tooling    layer = 65 // test tooling, imported by tests alone
	proof      layer = 70 // tests of the whole, imported by nobody
)

func (l layer) String() string {
	names := map[layer]string{vocabulary: "0 (vocabulary)", leaf: "0 (leaf helpers)", contract: "1 (contracts)",
		adapter: "2 (adapters)",
		heart:   "3 (hearts)", edge: "4 (edges)", wiring: "5 (wiring)", process: "6 (processes)",
		tooling: "test tooling", proof: "tests of the whole"}
	return names[l]
}

// room is one row of the layer table.
type room struct {
	// path is the import path below the module; "/..." includes everything
	// below it, which is then one room: inside it imports are free.
	path  string
	layer layer
	// above lists rooms of the same layer that this one builds on. It is data
	// so that every exception is seen, and empty for every adapter.
	above []string
}

// rooms is the layer table. A new package gets a line here, and a reason for being in its doc comment.
var rooms = []room{
	{path: "", layer: vocabulary},

	{path: "internal/atomicfile", layer: leaf},
	{path: "internal/clock", layer: leaf},
	{path: "internal/cputime", layer: leaf},
	{path: "internal/dockercontext", layer: leaf},
	{path: "internal/eventstream", layer: leaf},
	{path: "internal/filelock", layer: leaf},
	{path: "internal/hostdisk", layer: leaf, above: []string{"internal/filelock"}},
	{path: "internal/git/policy", layer: leaf},
	{path: "internal/hostgit", layer: leaf, above: []string{"internal/cputime", "internal/pattern"}},
	{path: "internal/hostpath", layer: leaf, above: []string{"internal/git/policy", "internal/linux/..."}},
	{path: "internal/instance", layer: leaf, above: []string{"internal/filelock"}},
	{path: "internal/jsonschema", layer: leaf, above: []string{"internal/pattern"}},
	{path: "internal/linux/...", layer: leaf, above: []string{"internal/filelock"}},
	{path: "internal/localsocket", layer: leaf},
	{path: "internal/pattern", layer: leaf},
	{path: "internal/prewarm", layer: leaf},
	{path: "internal/prices", layer: leaf, above: []string{"internal/pattern"}},
	{path: "internal/rootfs", layer: leaf},
	{path: "internal/secret", layer: leaf},
	{path: "internal/share", layer: leaf},
	{path: "internal/spool", layer: leaf, above: []string{"internal/share"}},
	{path: "internal/version", layer: leaf},
	{path: "message", layer: leaf},

	{path: "api", layer: contract},
	{path: "internal/access", layer: contract},
	{path: "internal/agent", layer: contract, above: []string{"api", "internal/egress/model", "internal/egress/policy"}},
	{path: "internal/apispec", layer: contract, above: []string{"api", "internal/egress/model", "internal/store"}},
	{path: "internal/detect", layer: contract},
	{path: "internal/compose", layer: contract},
	{path: "internal/compose/merge", layer: contract, above: []string{"internal/compose"}},
	{path: "internal/devcontainer", layer: contract, above: []string{"internal/compose", "internal/runtime"}},
	{path: "internal/egress", layer: contract, above: []string{"internal/egress/approval", "internal/egress/model",
		"internal/egress/policy", "internal/engine"}},
	{path: "internal/egress/approval", layer: contract, above: []string{"internal/egress/policy"}},
	{path: "internal/egress/decision", layer: leaf},
	{path: "internal/egress/github", layer: contract, above: []string{"internal/egress", "internal/egress/policy"}},
	{path: "internal/egress/model", layer: contract, above: []string{"internal/egress/policy"}},
	{path: "internal/egress/policy", layer: contract, above: []string{"internal/git/policy"}},
	{path: "internal/egress/redact", layer: contract},
	{path: "internal/engine", layer: contract, above: []string{"internal/guest"}},
	{path: "internal/engine/job", layer: contract, above: []string{"internal/engine", "internal/engine/process",
		"internal/engine/provision", "internal/guest"}},
	{path: "internal/engine/local", layer: contract, above: []string{"internal/engine", "internal/guest"}},
	{path: "internal/engine/pool", layer: contract, above: []string{"internal/engine", "internal/engine/process",
		"internal/engine/provision", "internal/guest"}},
	{path: "internal/engine/process", layer: contract, above: []string{"internal/engine", "internal/guest"}},
	{path: "internal/engine/provision", layer: contract, above: []string{"internal/engine", "internal/guest"}},
	{path: "internal/guest", layer: contract},
	{path: "internal/guest/build", layer: contract, above: []string{"internal/guest"}},
	{path: "internal/guest/guestd", layer: contract, above: []string{"internal/guest"}},
	{path: "internal/guest/remote", layer: contract, above: []string{"internal/guest", "internal/guest/build",
		"internal/guest/guestd", "internal/guest/stream"}},
	{path: "internal/guest/stream", layer: contract},
	{path: "internal/sidecar", layer: contract},
	{path: "internal/sidecar/inside", layer: contract, above: []string{"internal/sidecar"}},
	{path: "internal/sidecar/outside", layer: contract, above: []string{"internal/sidecar"}},
	{path: "internal/git/folder", layer: contract, above: []string{"internal/git/policy"}},
	{path: "internal/git/patch", layer: contract},
	{path: "internal/git/pktline", layer: contract},
	{path: "internal/git/smart", layer: contract, above: []string{"internal/git/pktline", "internal/git/policy"}},
	{path: "internal/model", layer: contract},
	{path: "internal/packages", layer: contract, above: []string{"internal/egress/policy"}},
	{path: "internal/backup", layer: adapter},
	{path: "internal/packages/cache", layer: adapter},
	{path: "internal/packages/debian", layer: contract, above: []string{"internal/packages"}},
	{path: "internal/profile", layer: contract, above: []string{"api", "internal/apispec", "internal/egress/policy"}},
	{path: "internal/runtime", layer: contract},
	{path: "internal/terminal", layer: contract},
	{path: "internal/workspace", layer: contract},
	{path: "internal/store", layer: contract, above: []string{"internal/detect", "internal/egress/approval",
		"internal/egress/model"}},
	{path: "internal/store/backlog", layer: contract},

	{path: "internal/agent/settle", layer: contract},
	{path: "internal/agent/userconfig", layer: contract, above: []string{"internal/agent", "internal/git/policy"}},
	{path: "internal/agent/install", layer: adapter},
	{path: "internal/engine/docker/...", layer: adapter},
	{path: "internal/egress/ca", layer: adapter},
	{path: "internal/egress/credential", layer: adapter},
	{path: "internal/egress/dns", layer: adapter},
	{path: "internal/egress/proxy", layer: adapter},
	{path: "internal/containers", layer: adapter},
	{path: "internal/egress/registry", layer: adapter},
	{path: "internal/engine/native/...", layer: adapter},
	{path: "internal/git/forge", layer: adapter},
	{path: "internal/git/inspect", layer: adapter},
	{path: "internal/gitservice/...", layer: adapter},
	{path: "internal/guest/pid1", layer: adapter},
	{path: "internal/image/...", layer: adapter},
	{path: "internal/repos", layer: adapter},
	{path: "internal/store/sqlite/...", layer: adapter},
	{path: "internal/worker/...", layer: adapter},

	{path: "internal/build", layer: heart, above: []string{"internal/build/origin", "internal/build/progress",
		"internal/build/tools"}},
	{path: "internal/build/origin", layer: heart},
	{path: "internal/build/progress", layer: heart},
	{path: "internal/build/tools", layer: heart},
	{path: "internal/execution", layer: heart},
	{path: "internal/agent/fit", layer: heart, above: []string{"internal/execution", "internal/run", "internal/sandbox"}},
	{path: "internal/gateway", layer: heart},
	{path: "internal/gateway/clients", layer: heart, above: []string{"internal/gateway"}},
	{path: "internal/gateway/outlet", layer: heart, above: []string{"internal/gateway"}},
	{path: "internal/generate", layer: heart, above: []string{"internal/execution", "internal/gateway/outlet"}},
	{path: "internal/run", layer: heart, above: []string{"internal/agent/fit", "internal/sandbox",
		"internal/sandbox/terminals"}},
	{path: "internal/sandbox", layer: heart, above: []string{"internal/sandbox/terminals"}},
	{path: "internal/sandbox/terminals", layer: heart},
	{path: "internal/work", layer: heart, above: []string{"internal/gateway/outlet", "internal/sandbox"}},

	{path: "client", layer: edge, above: []string{"internal/portstream"}},
	{path: "driver", layer: edge, above: []string{"client"}},
	{path: "internal/httpapi/...", layer: edge, above: []string{"internal/portstream"}},
	{path: "internal/meter", layer: edge},
	{path: "internal/portstream", layer: edge},
	{path: "internal/profiler", layer: edge},

	{path: "internal/engines", layer: wiring},
	{path: "internal/config", layer: wiring},
	{path: "internal/daemon", layer: wiring, above: []string{"internal/config", "internal/engines"}},
	{path: "internal/doctor/...", layer: wiring, above: []string{"internal/config"}},

	// The command line: what all rooms build on, then the rooms, which do not know each other, then the root command.
	{path: "internal/cli/ui", layer: wiring},
	{path: "internal/cli/session", layer: wiring, above: []string{"internal/config", "internal/cli/ui"}},
	{path: "internal/cli/flags", layer: wiring, above: []string{"internal/cli/session", "internal/cli/ui"}},
	{path: "internal/cli/report", layer: wiring, above: []string{"internal/cli/flags", "internal/cli/ui"}},
	{path: "internal/cli/interact", layer: wiring, above: []string{"internal/cli/flags", "internal/cli/report",
		"internal/cli/session", "internal/cli/ui"}},
	{path: "internal/cli/devcontainers", layer: wiring, above: []string{"internal/cli/flags", "internal/cli/interact",
		"internal/cli/session", "internal/cli/ui"}},
	{path: "internal/cli/run", layer: wiring, above: []string{"internal/cli/flags", "internal/cli/interact",
		"internal/cli/report", "internal/cli/session", "internal/cli/ui"}},
	{path: "internal/cli/sandbox", layer: wiring, above: []string{"internal/cli/devcontainers", "internal/cli/flags",
		"internal/cli/interact",
		"internal/cli/report", "internal/cli/session", "internal/cli/ui"}},
	{path: "internal/cli/agent", layer: wiring, above: []string{"internal/cli/devcontainers", "internal/cli/flags",
		"internal/cli/interact",
		"internal/cli/report", "internal/cli/session", "internal/cli/ui"}},
	{path: "internal/cli/network", layer: wiring, above: []string{"internal/cli/flags", "internal/cli/report",
		"internal/cli/session", "internal/cli/ui", "internal/config"}},
	{path: "internal/cli/server", layer: wiring, above: []string{"internal/cli/flags", "internal/cli/session",
		"internal/cli/ui", "internal/config"}},
	{path: "internal/cli", layer: wiring, above: []string{"internal/cli/agent", "internal/cli/flags",
		"internal/cli/network", "internal/cli/run",
		"internal/cli/sandbox", "internal/cli/server", "internal/cli/session", "internal/cli/ui"}},
	// What the rooms leave to a program with the daemon. No room knows it.
	{path: "internal/cli/embedded", layer: wiring, above: []string{"internal/cli/agent", "internal/cli/flags",
		"internal/cli/interact", "internal/cli/network",
		"internal/cli/server", "internal/cli/session", "internal/cli/ui", "internal/daemon",
		"internal/doctor/..."}},

	{path: "cmd/...", layer: process},

	// Conformance suites, fakes, lab servers and attacks. They build on contracts
	// alone, so that whatever keeps a contract can be tested with them.
	{path: "internal/clock/clocktest", layer: tooling},
	{path: "internal/egress/policy/policytest", layer: tooling},
	{path: "internal/engine/enginetest", layer: tooling},
	{path: "internal/engine/enginetest/fake", layer: tooling},
	{path: "internal/git/gittest", layer: tooling},
	{path: "internal/packages/debian/debiantest", layer: tooling},
	{path: "internal/store/storetest", layer: tooling},
	{path: "internal/terminal/terminaltest", layer: tooling},
	{path: "test/debian", layer: tooling},
	{path: "test/modeltest", layer: tooling},
	{path: "test/adversary/...", layer: tooling, above: []string{"internal/egress/policy/policytest"}},

	{path: "internal/archtest", layer: proof},
	{path: "test/...", layer: proof},
}

// fence keeps imports of a few packages to those who need them.
type fence struct {
	imported string   // pattern of what is imported, module or standard library
	by       []string // the only rooms that may
	reason   string
}

var fences = []fence{
	{imported: module + "/internal/engine/native/...", by: []string{"internal/engines", "cmd/..."},
		reason: "concrete engines are named in the wiring only; everybody else speaks to internal/engine"},
	{imported: module + "/internal/engine/docker/...", by: []string{"internal/engines", "cmd/..."},
		reason: "concrete engines are named in the wiring only; everybody else speaks to internal/engine"},
	{imported: module + "/internal/store/sqlite/...", by: []string{"internal/daemon", "cmd/..."},
		reason: "concrete stores are named in the wiring only; everybody else speaks to internal/store"},
	{imported: module + "/api", by: []string{"internal/apispec", "client", "driver", "internal/httpapi/...",
		"internal/cli/...", "internal/daemon", "cmd/...",
		"test/...",
		// The file of profiles and the limits of the configuration are documents in the wire format.
		"internal/agent/fit", "internal/config", "internal/profile", "internal/portstream"},
		reason: "services and stores own their types; the edge turns them into the wire format"},
	{imported: module + "/internal/gitservice/inside", by: []string{"cmd/..."},
		reason: "it is the git command of a sandbox; the host imports internal/gitservice"},
	{imported: "modernc.org/sqlite/...", by: []string{"internal/store/sqlite/..."},
		reason: "one package per technology"},
	{imported: "github.com/moby/moby/...", by: []string{"internal/engine/docker/..."},
		reason: "one package per technology"},
	{imported: "github.com/moby/buildkit/...", by: []string{"internal/image/..."},
		reason: "one package per technology"},
	{imported: "github.com/google/go-containerregistry/...", by: []string{"internal/image/..."},
		reason: "one package per technology"},
	{imported: "github.com/danielgtaylor/huma/...", by: []string{"internal/httpapi/..."},
		reason: "one package per technology"},
	{imported: "github.com/santhosh-tekuri/jsonschema/...", by: []string{"internal/jsonschema"},
		reason: "one package per technology"},
	{imported: "github.com/bmatcuk/doublestar/...", by: []string{"internal/worker/..."},
		reason: "one package per technology"},
	{imported: "github.com/vektah/gqlparser/...", by: []string{"internal/egress/github"},
		reason: "one package per technology"},
	{imported: "github.com/ProtonMail/go-crypto/...", by: []string{"internal/packages/debian/..."},
		reason: "one package per technology"},
	{imported: "github.com/prometheus/...", by: []string{"internal/httpapi/...", "internal/meter", "internal/daemon"},
		reason: "what happens is counted where it is shown; nothing below knows how"},
	{imported: "github.com/spf13/cobra/...", by: []string{"internal/cli/...", "cmd/..."},
		reason: "only the command line knows its library"},
	{imported: "os/exec", by: []string{"internal/doctor/...", "internal/engine/docker", "internal/cli/session",
		"internal/cli/flags", "internal/cli/sandbox", "internal/cli/agent", "internal/containers",
		"internal/egress/credential", "internal/egress/registry",
		"internal/engine/local", "internal/engine/native/...", "internal/engine/enginetest", "internal/git/gittest",
		"internal/terminal/terminaltest", "internal/hostgit", "internal/worker/...", "internal/linux/disk",
		"internal/backup", "client", "driver", "cmd/..."},
		reason: "processes are started through syscall.ForkExec by the native engine; nothing else runs programs on the " +
			"host, but git in its own way, e2fsprogs on an image of a disk, tar for backups, and others to ask them how they " +
			"are configured, for a credential or for containers, and the client and the docker engine ssh; " +
			"the worker is not on the host"},
}

// guestRoots are linked into cove-guest, which lives in every sandbox.
var guestRoots = []string{"./cmd/cove-guest"}

// guestRefuses are packages that cove-guest must not link.
var guestRefuses = map[string]string{
	"net":             "the guest makes its sockets by system call; package net brings a resolver and a poller nobody uses",
	"net/http":        "the guest speaks the guest protocol only",
	"crypto/tls":      "the guest holds no keys and speaks no TLS",
	"os/exec":         "the guest starts processes by ForkExec, with nothing looked up in a PATH",
	"text/template":   "it keeps every method of every type alive, which doubles the binary",
	"html/template":   "it keeps every method of every type alive, which doubles the binary",
	"database/sql":    "the guest stores nothing",
	"testing":         "test code does not belong into a sandbox",
	"net/http/pprof":  "the guest has no debug surface",
	"log/slog":        "the guest reports over its protocol",
	"encoding/gob":    "the protocol is JSON and frames",
	"plugin":          "the guest loads no code",
	"internal/plugin": "the guest loads no code",
}

// guestModules are the only modules beside the standard library and Cove's own that cove-guest may link.
var guestModules = []string{"golang.org/x/sys/", "golang.org/x/net/bpf"}

// guestMaxSize is what cove-guest may weigh on disk.
const guestMaxSize = 5 << 20

// workerMaxSize is what cove-worker may weigh on disk: it is mounted into sandboxes, and speaks TLS.
const workerMaxSize = 10 << 20

// commandRefuses are packages that cove must not link, since they make every command start later. The program beside it
// links them, and takes its place where they are needed.
var commandRefuses = map[string]string{
	module + "/internal/daemon":                  "the daemon is cove-server's: reach it as internal/cli/embedded does",
	module + "/internal/cli/embedded":            "the daemon is cove-server's",
	module + "/internal/doctor/...":              "the doctor is cove-server's",
	module + "/internal/engines":                 "engine.Names has the names of engines",
	module + "/internal/profiler":                "profiles are the daemon's",
	"net/http/pprof":                             "profiles are the daemon's",
	module + "/internal/httpapi":                 "what both sides need of work is in internal/httpapi/workspec",
	module + "/internal/store/sqlite/...":        "records are the daemon's",
	module + "/internal/image":                   "images are the daemon's; internal/image/source has their names",
	module + "/driver":                           "agents without a sandbox are cove-server's",
	"github.com/santhosh-tekuri/...":             "its initialisation takes 3 to 5 ms",
	"github.com/prometheus/...":                  "its initialisation takes 1 to 2 ms",
	"github.com/danielgtaylor/huma/...":          "its initialisation takes 1 ms",
	"github.com/distribution/...":                "its initialisation takes 1 ms",
	"github.com/google/go-containerregistry/...": "it links github.com/distribution",
	"github.com/moby/moby/...":                   "the client of Docker is the daemon's",
	"modernc.org/...":                            "records are the daemon's",
	"github.com/aws/...":                         "the gateway's credentials are the daemon's",
}

// commandMaxSize is what cove may weigh on disk: most of the time that it takes to start is for pages of it.
const commandMaxSize = 18 << 20

// matches reports whether an import path falls under a pattern.
func matches(pattern, path string) bool {
	tree, ok := strings.CutSuffix(pattern, "/...")
	if !ok {
		return pattern == path
	}
	return path == tree || strings.HasPrefix(path, tree+"/")
}

// roomOf finds the most specific row for a path below the module.
func roomOf(path string) (room, bool) {
	var best room
	found := false
	for _, r := range rooms {
		if matches(r.path, path) && (!found || len(r.path) > len(best.path)) {
			best, found = r, true
		}
	}
	return best, found
}

// objection says why one package must not import another, or nothing.
func objection(from, to string) string {
	a, ok := roomOf(from)
	if !ok {
		return "" // reported by the test that every package is in the table
	}
	b, ok := roomOf(to)
	if !ok || a.path == b.path {
		return ""
	}
	if a.layer == tooling && b.layer > contract && b.layer < tooling {
		return "test tooling builds on contracts alone: what it tests is handed to it"
	}
	if b.layer < a.layer {
		return ""
	}
	for _, p := range a.above {
		if p == b.path {
			return ""
		}
	}
	switch {
	case b.layer == proof:
		return "tests of the whole are imported by nobody"
	case b.layer == tooling:
		return "test tooling is imported by tests alone"
	case a.layer == adapter && b.layer == adapter:
		return "adapters never import a sibling: one technology each, joined in internal/daemon"
	case a.layer == b.layer:
		return "both are of layer " + a.layer.String() + "; imports go strictly downward"
	}
	return "layer " + a.layer.String() + " must not import layer " + b.layer.String() + "; imports go strictly downward"
}
