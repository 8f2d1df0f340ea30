// Package config owns Cove's settings: one YAML file, the environment over it, and the command line over both.
//
// Every setting has one name, a path such as sandbox.max_concurrent: that is how it stands in the file, how messages
// call it, and (in capitals, with COVE_ in front and _ for the dots) its environment variable. Load reads all three,
// refuses what it does not know with the line it stands on, and keeps where each value came from.
package config

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strconv"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/agent"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/runtime"
)

// Config holds every setting. The doc tags are their descriptions in "cove config show" and in the example.
type Config struct {
	Listen       string   `yaml:"listen" doc:"Address of the HTTP API, host:port; beyond loopback it needs api_keys. Empty: the unix socket in run_dir only."`
	AllowedHosts []string `yaml:"allowed_hosts" doc:"Names besides localhost under which the API may be called on loopback."`
	TLS          TLS      `yaml:"tls"`
	APIKeys      []APIKey `yaml:"api_keys" doc:"Who may use the API, and for what; make keys with: cove config new-key NAME."`

	Home   string `yaml:"home" doc:"Where state is kept: database, images."`
	RunDir string `yaml:"run_dir" doc:"Where sockets and locks are; emptied by a reboot."`

	Guest     string `yaml:"guest" doc:"Path of the cove-guest program; empty: beside cove itself."`
	Engine    string `yaml:"engine" doc:"Engine for requests that name none: native, docker, podman or auto."`
	Isolation string `yaml:"isolation" doc:"Isolation for requests that name none, if the engine has it: container, gvisor or microvm."`

	Profiles string `yaml:"profiles" doc:"File that describes profiles, which is read at each use; empty: profiles.yaml in home."`

	Agents []agent.Agent `yaml:"agents" doc:"Coding agents beside those that Cove knows, or in their place; see docs/agents.md."`

	Server    Server    `yaml:"server"`
	Sandbox   Sandbox   `yaml:"sandbox"`
	Gateway   Gateway   `yaml:"gateway"`
	RateLimit RateLimit `yaml:"rate_limit"`
	Audit     Audit     `yaml:"audit"`
	History   History   `yaml:"history"`
	Disk      Disk      `yaml:"disk"`
	Log       Log       `yaml:"log"`

	ShutdownGrace Duration `yaml:"shutdown_grace" doc:"How long executions may go on when the server is told to stop; then they are killed."`

	// File is the absolute path of the file that the settings come from; empty without one.
	File string

	origins  map[string]Origin
	warnings []string
}

// TLS names the files of the server's certificate.
type TLS struct {
	Cert string `yaml:"cert" doc:"PEM file of the certificate and its chain; with key, the API is served over TLS."`
	Key  string `yaml:"key" doc:"PEM file of the certificate's key."`
}

// Server holds settings of the server itself.
type Server struct {
	OutputMemoryMB int `yaml:"output_memory_mb" doc:"MiB of memory that the outputs of all executions take together; beyond that they lie on the disk of home, in files without a name, until they are answered."`
	OutputDiskMB   int `yaml:"output_disk_mb" doc:"MiB that they take there at most; they also leave twice history.min_free_mb free. Output that finds no room is dropped, and reported as beyond its limit."`

	Debug bool `yaml:"debug" doc:"Whether the owner can read profiles, from cove-debug.sock in run_dir."`

	Metrics string `yaml:"metrics" doc:"Who may read GET /metrics: callers with a key of the scope metrics or admin (key), or every caller (open)."`
}

// Values of Server.Metrics.
const (
	MetricsKey  = "key"
	MetricsOpen = "open"
)

// Sandbox bounds what callers may ask for.
type Sandbox struct {
	AllowedWorkdirRoots []string `yaml:"allowed_workdir_roots" doc:"Host directories below which callers of the API may attach work_dir and mounts; none by default. The local command line is not bound by it."`
	MaxConcurrent       int      `yaml:"max_concurrent" doc:"Executions that run at once."`
	MaxComputing        int      `yaml:"max_computing" doc:"Of these, those that compute; 0: four for each processor."`
	Queue               int      `yaml:"queue" doc:"Executions that may wait beyond these; others get 429."`
	MaxWait             Duration `yaml:"max_wait" doc:"Longest wait of one; 0: as long as it may run."`
	MaxLasting          int      `yaml:"max_lasting" doc:"Long-lived sandboxes, running or not; 0 is no limit."`
	Ready               int      `yaml:"ready" doc:"Guests that the native engine keeps ready; as many with a network, and their certificate authorities, once a sandbox has had one."`
	CgroupParent        string   `yaml:"cgroup_parent" doc:"Name of the control group that holds all sandboxes of the native engine."`
	DefaultLimits       Limits   `yaml:"default_limits" doc:"Where neither the request nor the runtime says anything."`
	MaxLimits           Limits   `yaml:"max_limits" doc:"The most a request may ask for."`
	Image               string   `yaml:"image" doc:"Root filesystem of sandboxes that name none: host, dir:PATH, tar:PATH, or a reference; empty: host."`
	NoExec              bool     `yaml:"noexec" doc:"Whether nothing in temporary places (/tmp, /var/tmp, /run, /dev/shm) can be run, whatever a request says."`
	Pool                Pool     `yaml:"pool"`
	Lasting             Lasting  `yaml:"lasting"`
	OwnerTimeout        Duration `yaml:"owner_timeout" doc:"The longest wall time that the machine's owner may ask for with cove run; for others max_limits says it."`
}

// computingPerProcessor keeps processors busy while executions wait for disks and locks of the kernel.
const computingPerProcessor = 4

// Computing returns max_computing on a machine with so many processors.
func (s Sandbox) Computing(processors int) int {
	return cmp.Or(s.MaxComputing, computingPerProcessor*processors)
}

// Lasting holds the settings of long-lived sandboxes.
type Lasting struct {
	Image        string     `yaml:"image" doc:"Root filesystem of long-lived sandboxes that name none; empty: sandbox.image."`
	Limits       Resources  `yaml:"limits"`
	WatchedDisks bool       `yaml:"watched_disks" doc:"Whether callers other than the machine's owner get long-lived sandboxes where the kernel cannot hold workspace and home to their limit, as without root: Cove then measures them, and pauses what is beyond."`
	Throughput   Throughput `yaml:"throughput"`
	IdleStop     Duration   `yaml:"idle_stop" doc:"A long-lived sandbox that has been idle for so long is stopped; 0: never."`
	IdleRemove   Duration   `yaml:"idle_remove" doc:"One that has been idle for so long, and has no work that would be lost, is destroyed; 0: never."`
}

// Throughput limits the reads and writes of a long-lived sandbox.
type Throughput struct {
	MBPerSecond int64 `yaml:"mb_per_second" doc:"MiB that a long-lived sandbox reads, and as many that it writes, per second of its disk; 0: no limit. It needs disks that the kernel bounds."`
	Operations  int64 `yaml:"operations" doc:"Reads, and as many writes, per second of it; 0: no limit."`
}

// Resources are limits of a sandbox, with the names and units of the API.
type Resources struct {
	MemoryMB  int64   `yaml:"memory_mb" doc:"MiB of memory."`
	CPUs      float64 `yaml:"cpus" doc:"Cores."`
	PIDs      int64   `yaml:"pids_limit" doc:"Processes and threads."`
	DiskMB    int64   `yaml:"disk_mb" doc:"MiB of workspace and home together, and of everything else writable."`
	Inodes    int64   `yaml:"inodes" doc:"Files and directories there."`
	OpenFiles int64   `yaml:"open_files" doc:"Descriptors per process."`
}

// limits returns them in bytes.
func (l Resources) limits() cove.Limits {
	return apispec.Limits(api.Limits{MemoryMB: l.MemoryMB, CPUs: l.CPUs, PIDs: l.PIDs, DiskMB: l.DiskMB, Inodes: l.Inodes,
		OpenFiles: l.OpenFiles})
}

// Limits have the names and units of the API.
type Limits struct {
	MemoryMB  int64    `yaml:"memory_mb" doc:"MiB of memory, files in writable places included."`
	CPUs      float64  `yaml:"cpus" doc:"Cores."`
	PIDs      int64    `yaml:"pids_limit" doc:"Processes and threads."`
	DiskMB    int64    `yaml:"disk_mb" doc:"MiB of everything writable."`
	Inodes    int64    `yaml:"inodes" doc:"Files and directories."`
	OpenFiles int64    `yaml:"open_files" doc:"Descriptors per process."`
	StdoutKB  int64    `yaml:"stdout_kb" doc:"KiB of output that are kept."`
	StderrKB  int64    `yaml:"stderr_kb" doc:"KiB of error output that are kept."`
	Timeout   Duration `yaml:"timeout" doc:"Wall time."`
}

// Gateway holds the settings of the gateway through which sandboxes reach a network.
type Gateway struct {
	Resolver        string   `yaml:"resolver" doc:"DNS server, address:port; empty: the machine's own."`
	ExtraCAs        []string `yaml:"extra_cas" doc:"PEM files of authorities that vouch for servers beside the machine's own."`
	PrivateCIDRs    []string `yaml:"private_cidrs" doc:"Private addresses that names which a policy allows may lead to, like 10.1.0.0/16; none by default."`
	Credentials     string   `yaml:"credentials" doc:"File that describes credentials of this machine beside the ones Cove knows; the values stay where they are."`
	ApprovalTimeout Duration `yaml:"approval_timeout" doc:"How long a request waits for an answer that a policy asks about; then it is denied."`
	Providers       string   `yaml:"providers" doc:"File that describes providers of models beside the ones Cove knows, or changes those."`
	Budget          string   `yaml:"budget" doc:"The most that each execution may use of models where it says nothing, like requests=100,tokens=200000,cost=1.50; empty: no limit."`
	UpstreamProxy   string   `yaml:"upstream_proxy" doc:"HTTP proxy that reaches the internet, http://[USER:PASSWORD@]HOST:PORT; empty: none is needed."`
	GitHubHosts     []string `yaml:"github_hosts" doc:"GitHub Enterprise servers, like github.example.com: what is asked of their API is judged as it is for GitHub itself."`

	PackagesMB  int  `yaml:"packages_mb" doc:"MiB of the cache of packages that all sandboxes share, by reading only; the files that were used the longest ago go first. 0 is no cache."`
	NPMPackages bool `yaml:"npm_packages" doc:"Whether sandboxes find packages of npm that earlier sandboxes of the same owner have fetched in npm's own cache (~/.npm), so that npm does not fetch them again."`

	RateLimit GatewayRate `yaml:"rate_limit"`
	Bandwidth float64     `yaml:"bandwidth_mb" doc:"MiB per second that one sandbox receives, and as many that it sends, over all of its connections; 0 is no limit."`
}

// GatewayRate bounds what each sandbox sends out.
type GatewayRate struct {
	PerSecond float64 `yaml:"per_second" doc:"Requests, and connections that are passed through, a second of one sandbox to one host and port; to all together 4 times as many. 0 is no limit."`
	Burst     int     `yaml:"burst" doc:"As many at once before the rate counts; at least 1."`
}

// RateLimit bounds the requests of each caller of the API.
type RateLimit struct {
	PerSecond float64 `yaml:"per_second" doc:"Requests a second of each key, or local user without keys; 0: no limit."`
	Burst     int     `yaml:"burst" doc:"Requests at once before the rate counts; at least 1."`
}

// Audit bounds the records that are kept.
type Audit struct {
	Retention Duration `yaml:"retention" doc:"How long executions, audit records and decisions of the gateway are kept; 0 is for ever."`
	MaxMB     int      `yaml:"max_mb" doc:"MiB of the database up to which audit records are kept, beside the history. Beyond it the oldest records of the caller that has most go first, and a record says so. 0 is no bound."`
	Decisions int      `yaml:"decisions" doc:"How many decisions about what may leave sandboxes are kept at most; the oldest of the caller that has most go first."`
}

// History bounds the space that the history of executions takes.
type History struct {
	MaxMB     int `yaml:"max_mb" doc:"MiB up to which executions fill the database, and as many for the files of agents' runs: their messages and recordings. Beyond it the output of the oldest executions goes, of the caller who fills it first, and then their records; and the files of the runs that ended first, whose records stay. 0 is no bound."`
	MinFreeMB int `yaml:"min_free_mb" doc:"With less MiB free on the disk of home, new executions and outputs take the place of old outputs, and the files of the oldest runs go."`
}

// Disk bounds what is kept on the disk of home to be used again.
type Disk struct {
	ImagesMB       int `yaml:"images_mb" doc:"Most MiB of the images of the store together. Beyond it those go that come back by themselves and were used the longest ago; what was pulled or imported stays, and another is refused. 0 is no bound."`
	RepositoriesMB int `yaml:"repositories_mb" doc:"Most MiB of the mirrors of repositories together. Beyond it those go that no sandbox borrows from and that were used the longest ago. 0 is no bound."`
}

// Log holds the settings of the server's log, on standard error.
type Log struct {
	Level  string `yaml:"level" doc:"debug, info, warn or error."`
	Format string `yaml:"format" doc:"text or json."`
}

// Defaults returns the settings without a file, environment or flags. getenv and
// uid tell where the user's directories are.
func Defaults(getenv func(string) string, uid int) Config {
	return Config{
		Listen:    "127.0.0.1:8080",
		Home:      defaultHome(getenv, uid),
		RunDir:    defaultRunDir(getenv, uid),
		Engine:    "native",
		Isolation: string(cove.IsolationContainer),
		Server:    Server{OutputMemoryMB: 16, OutputDiskMB: 4096, Metrics: MetricsKey},
		Sandbox: Sandbox{
			MaxConcurrent: 64,
			MaxLasting:    256,
			Queue:         256,
			MaxWait:       Duration(time.Minute),
			Ready:         1,
			CgroupParent:  "cove",
			DefaultLimits: limitsOf(runtime.Defaults),
			MaxLimits:     limitsOf(runtime.Max),
			OwnerTimeout:  Duration(runtime.OwnerTimeout),
			Pool: Pool{Size: 4, MemoryMB: 256, MaxAge: Duration(5 * time.Minute), Zygotes: true,
				Docker: DockerPool{Size: 5, Refill: 2}},
			Lasting: Lasting{Limits: resourcesOf(runtime.Lasting)},
		},
		Gateway: Gateway{
			PackagesMB:      4096,
			NPMPackages:     true,
			ApprovalTimeout: Duration(2 * time.Minute), RateLimit: GatewayRate{PerSecond: 500, Burst: 5000},
		},
		RateLimit:     RateLimit{PerSecond: 200, Burst: 400},
		Audit:         Audit{Retention: Duration(30 * 24 * time.Hour), MaxMB: 512, Decisions: 200_000},
		History:       History{MaxMB: 2048, MinFreeMB: 64},
		Disk:          Disk{ImagesMB: 51_200, RepositoriesMB: 51_200},
		Log:           Log{Level: "info", Format: "text"},
		ShutdownGrace: Duration(10 * time.Second),
	}
}

func defaultHome(getenv func(string) string, uid int) string {
	if uid == 0 {
		return "/var/lib/cove"
	}
	if d := getenv("XDG_DATA_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "cove")
	}
	return filepath.Join(cmp.Or(getenv("HOME"), getenv("USERPROFILE")), ".local/share/cove")
}

func defaultRunDir(getenv func(string) string, uid int) string {
	if uid == 0 {
		return "/run/cove"
	}
	if d := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(d) {
		return filepath.Join(d, "cove")
	}
	return filepath.Join(defaultHome(getenv, uid), "run")
}

func resourcesOf(l cove.Limits) Resources {
	a := apispec.LimitsOf(l)
	return Resources{MemoryMB: a.MemoryMB, CPUs: a.CPUs, PIDs: a.PIDs, DiskMB: a.DiskMB, Inodes: a.Inodes,
		OpenFiles: a.OpenFiles}
}

func limitsOf(l cove.Limits) Limits {
	a := apispec.LimitsOf(l)
	return Limits{
		MemoryMB: a.MemoryMB, CPUs: a.CPUs, PIDs: a.PIDs, DiskMB: a.DiskMB, Inodes: a.Inodes, OpenFiles: a.OpenFiles,
		StdoutKB: a.StdoutKB, StderrKB: a.StderrKB, Timeout: Duration(l.Timeout),
	}
}

func (l Limits) limits() cove.Limits {
	all := apispec.Limits(api.Limits{
		MemoryMB: l.MemoryMB, CPUs: l.CPUs, PIDs: l.PIDs, DiskMB: l.DiskMB, Inodes: l.Inodes, OpenFiles: l.OpenFiles,
		StdoutKB: l.StdoutKB, StderrKB: l.StderrKB,
	})
	all.Timeout = time.Duration(l.Timeout)
	return all
}

// Spec returns the default spec of sandboxes, without limits: see Bounds.
func (c *Config) Spec() cove.Spec {
	return cove.Spec{Engine: c.Engine, Image: c.Sandbox.Image,
		Shape: cove.Shape{Isolation: cove.Isolation(c.Isolation), NoExec: c.Sandbox.NoExec}}
}

// LastingSpec returns the same for long-lived sandboxes.
func (c *Config) LastingSpec() cove.Spec {
	return cove.Spec{Image: c.Sandbox.Lasting.Image,
		Shape: cove.Shape{Limits: c.Sandbox.Lasting.Limits.limits()}}.Over(c.Spec())
}

// Bounds returns the limits that requests are held to.
func (c *Config) Bounds() runtime.Bounds {
	return runtime.Bounds{Defaults: c.Sandbox.DefaultLimits.limits(), Max: c.Sandbox.MaxLimits.limits(),
		OwnerTimeout: c.Sandbox.OwnerTimeout.Std()}
}

// ProfilesFile returns the path of the file of profiles.
func (c *Config) ProfilesFile() string {
	return cmp.Or(c.Profiles, filepath.Join(c.Home, "profiles.yaml"))
}

// Database returns the path of the database.
func (c *Config) Database() string { return filepath.Join(c.Home, "cove.db") }

// Socket returns the path of the server's unix socket.
func (c *Config) Socket() string { return filepath.Join(c.RunDir, "cove.sock") }

// Warnings returns the findings of Load that are odd but not wrong.
func (c *Config) Warnings() []string { return c.warnings }

// Duration is a time.Duration that also takes days ("30d").
type Duration time.Duration

// Std returns d as a time.Duration.
func (d Duration) Std() time.Duration { return time.Duration(d) }

const day = 24 * time.Hour

func (d Duration) String() string {
	if t := time.Duration(d); t != 0 && t%day == 0 {
		return strconv.FormatInt(int64(t/day), 10) + "d"
	}
	return time.Duration(d).String()
}

// NewAPIKey returns a fresh key of 256 random bits, and the hash that api_keys stores. The key is shown once and kept
// nowhere; because it is random, a plain hash of it tells nothing.
func NewAPIKey() (key, hash string) {
	var b [32]byte
	rand.Read(b[:])
	key = "cove_" + hex.EncodeToString(b[:])
	return key, HashAPIKey(key)
}

// HashAPIKey is the hash of a key as api_keys stores it.
func HashAPIKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}
