package config

import (
	"cmp"
	"math"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/pattern"
	"github.com/cove-sandbox/cove/internal/runtime"
)

// Validate refuses settings that cannot work, or that would be dangerous, with
// the setting's name, where it was set, and what to do.
func (c *Config) Validate() error {
	for _, check := range []func() error{
		c.checkKeys, c.checkListen, c.checkTLS, c.checkPaths,
		c.checkChoices, c.checkNumbers, c.checkLimits, c.checkGateway,
		func() error { return checkModules(c) },
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return checkPool(c)
}

func (c *Config) wrong(name, format string, args ...any) *cove.Error {
	err := cove.Errorf(cove.InvalidArgument, format, args...)
	err.Message = name + ": " + err.Message
	if o := c.Origin(name); o != "default" {
		err.Message += " (from " + strings.TrimPrefix(string(o), "file ") + ")"
	}
	return err
}

// groupName may be nested (a.slice/cove), but leads nowhere else.
var groupName = pattern.New(`^[A-Za-z0-9_-][A-Za-z0-9._@:-]*(/[A-Za-z0-9_-][A-Za-z0-9._@:-]*)*$`)

var keyName = pattern.New(`^[A-Za-z0-9._-]{1,64}$`)

func (c *Config) checkListen() error {
	if c.Listen == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return c.wrong("listen", "%q is not host:port", c.Listen).WithHint("write it like 127.0.0.1:8080")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return c.wrong("listen", "%q is not a port", port).WithHint("use 1 to 65535, or 0 for a free one")
	}
	if len(c.APIKeys) == 0 && !loopback(host) {
		return c.wrong("listen",
			"%s can be reached from other machines, and there are no api_keys: each of them could run code", c.Listen).
			WithHint("add a key (cove config new-key NAME), or listen on 127.0.0.1")
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func withPort(listen, port string) (string, error) {
	listen = cmp.Or(listen, "127.0.0.1:0")
	host, _, err := net.SplitHostPort(listen)
	if n, e := strconv.Atoi(port); err != nil || e != nil || n < 0 || n > 65535 {
		return "", cove.Errorf(cove.InvalidArgument, "the environment variable PORT: %.40q is not a port", port).
			WithHint("use 1 to 65535")
	}
	return net.JoinHostPort(host, port), nil
}

func (c *Config) checkGateway() error {
	g := c.Gateway
	if g.Resolver != "" {
		if _, err := netip.ParseAddrPort(g.Resolver); err != nil {
			return c.wrong("gateway.resolver", "%q is not address:port", g.Resolver).WithHint("write it like 192.0.2.53:53")
		}
	}
	for _, s := range g.PrivateCIDRs {
		if _, err := netip.ParsePrefix(s); err != nil {
			return c.wrong("gateway.private_cidrs", "%q is not a range of addresses", s).WithHint("write it like 10.1.0.0/16")
		}
	}
	for _, s := range g.GitHubHosts {
		if _, err := policy.ParseHost(s); err != nil {
			return c.wrong("gateway.github_hosts", "%q is not the name of a host", s).
				WithHint("write it like github.example.com")
		}
	}
	if g.Budget != "" {
		if _, err := model.ParseBudget(g.Budget); err != nil {
			return c.wrong("gateway.budget", "%q is no budget", g.Budget).WithHint("%s", cove.ErrorHint(err))
		}
	}
	if g.UpstreamProxy != "" {
		if u, err := url.Parse(g.UpstreamProxy); err != nil || u.Scheme != "http" || u.Port() == "" || u.Path != "" {
			return c.wrong("gateway.upstream_proxy", "this is no HTTP proxy").
				WithHint("write it like http://proxy.example.com:3128")
		}
	}
	return nil
}

func (c *Config) checkTLS() error {
	if (c.TLS.Cert == "") != (c.TLS.Key == "") {
		missing := "tls.key"
		if c.TLS.Cert == "" {
			missing = "tls.cert"
		}
		return c.wrong(missing, "is missing").WithHint("TLS needs both tls.cert and tls.key")
	}
	return nil
}

func (c *Config) checkPaths() error {
	for _, p := range []struct{ name, path string }{{"home", c.Home}, {"run_dir", c.RunDir}} {
		if !filepath.IsAbs(p.path) {
			return c.wrong(p.name, "%q is not an absolute path", p.path).WithHint("begin it with /")
		}
	}
	for _, p := range []struct{ name, path string }{{"guest", c.Guest}, {"profiles", c.Profiles}} {
		if p.path != "" && !filepath.IsAbs(p.path) {
			return c.wrong(p.name, "%q is not an absolute path", p.path).WithHint("begin it with /, or leave it out")
		}
	}
	// A pattern that counts takes half a millisecond to compile, in every command.
	tooLong := func(part string) bool { return len(part) > 101 }
	parent := c.Sandbox.CgroupParent
	if !groupName.MatchString(parent) || slices.ContainsFunc(strings.Split(parent, "/"), tooLong) {
		return c.wrong("sandbox.cgroup_parent", "%.80q is not a name for a control group", c.Sandbox.CgroupParent).
			WithHint("use letters, digits, _ and -, such as cove")
	}
	for _, root := range c.Sandbox.AllowedWorkdirRoots {
		if !filepath.IsAbs(root) || filepath.Clean(root) == "/" {
			return c.wrong("sandbox.allowed_workdir_roots", "%q is not an absolute path below /", root).
				WithHint("name a directory such as /srv/work")
		}
	}
	for _, i := range []struct{ name, image string }{
		{"sandbox.image", c.Sandbox.Image}, {"sandbox.lasting.image", c.Sandbox.Lasting.Image},
	} {
		kind, place, ok := strings.Cut(i.image, ":")
		if ok && (kind == "dir" || kind == "tar") && !filepath.IsAbs(place) {
			return c.wrong(i.name, "%q is not an absolute path", place).WithHint("begin it with /")
		}
	}
	return nil
}

func (c *Config) checkChoices() error {
	for _, k := range []struct {
		name, value string
		choices     []string
	}{
		{"engine", c.Engine, append(engine.Names(), engine.Auto)},
		{"isolation", c.Isolation, []string{"container", "gvisor", "microvm"}},
		{"server.metrics", c.Server.Metrics, []string{MetricsKey, MetricsOpen}},
		{"log.level", c.Log.Level, []string{"debug", "info", "warn", "error"}},
		{"log.format", c.Log.Format, []string{"text", "json"}},
	} {
		if !slices.Contains(k.choices, k.value) {
			return c.wrong(k.name, "%.80q is none of %s", k.value, strings.Join(k.choices, ", ")).WithHint("choose one of them")
		}
	}
	return nil
}

var moduleName = pattern.New(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$`)

func checkModules(c *Config) error {
	const name = "sandbox.pool.python_modules"
	p := c.Sandbox.Pool
	for _, m := range p.PythonModules {
		if !moduleName.MatchString(m) || len(m) > 100 {
			return c.wrong(name, "%.100q is no name of a module", m).WithHint("write it as after import: json, xml.dom")
		}
	}
	if len(p.PythonModules) > 100 {
		return c.wrong(name, "%d modules are too many", len(p.PythonModules)).WithHint("name 100 at most")
	}
	if len(p.PythonModules) > 0 && !p.Zygotes {
		return c.wrong(name, "modules are loaded ahead in zygotes alone").WithHint("set sandbox.pool.zygotes to true")
	}
	return nil
}

func (c *Config) checkNumbers() error {
	for _, n := range []struct {
		name       string
		value      float64
		least, top float64
	}{
		{"sandbox.max_concurrent", float64(c.Sandbox.MaxConcurrent), 1, 10_000},
		{"sandbox.max_computing", float64(c.Sandbox.MaxComputing), 0, 10_000},
		{"sandbox.lasting.throughput.mb_per_second", float64(c.Sandbox.Lasting.Throughput.MBPerSecond), 0, 1e6},
		{"sandbox.lasting.throughput.operations", float64(c.Sandbox.Lasting.Throughput.Operations), 0, 1e8},
		{"sandbox.max_lasting", float64(c.Sandbox.MaxLasting), 0, 100_000},
		{"sandbox.queue", float64(c.Sandbox.Queue), 0, 100_000},
		{"sandbox.ready", float64(c.Sandbox.Ready), 0, 1000},
		{"sandbox.pool.size", float64(c.Sandbox.Pool.Size), 0, mostPrepared},
		{"sandbox.pool.docker.size", float64(c.Sandbox.Pool.Docker.Size), 0, mostPrepared},
		{"sandbox.pool.docker.refill", float64(c.Sandbox.Pool.Docker.Refill), 0, mostPrepared},
		{"sandbox.pool.memory_mb", float64(c.Sandbox.Pool.MemoryMB), 0, 1e7},
		{"rate_limit.per_second", c.RateLimit.PerSecond, 0, 1e6},
		{"rate_limit.burst", float64(c.RateLimit.Burst), 1, 1e6},
		{"gateway.rate_limit.per_second", c.Gateway.RateLimit.PerSecond, 0, 1e6},
		{"gateway.rate_limit.burst", float64(c.Gateway.RateLimit.Burst), 1, 1e6},
		{"gateway.packages_mb", float64(c.Gateway.PackagesMB), 0, 1e9},
		{"gateway.bandwidth_mb", c.Gateway.Bandwidth, 0, 1e6},
		{"audit.max_mb", float64(c.Audit.MaxMB), 0, 1e7},
		{"audit.decisions", float64(c.Audit.Decisions), 1000, 1e8},
		{"server.output_memory_mb", float64(c.Server.OutputMemoryMB), 0, 1e6},
		{"server.output_disk_mb", float64(c.Server.OutputDiskMB), 0, 1e7},
		{"history.max_mb", float64(c.History.MaxMB), 0, 1e7},
		{"history.min_free_mb", float64(c.History.MinFreeMB), 0, 1e7},
		{"disk.images_mb", float64(c.Disk.ImagesMB), 0, 1e9},
		{"disk.repositories_mb", float64(c.Disk.RepositoriesMB), 0, 1e9},
	} {
		if !(n.value >= n.least && n.value <= n.top) || math.IsNaN(n.value) {
			return c.wrong(n.name, "%v is out of range", n.value).WithHint("use %v to %v", n.least, n.top)
		}
	}
	for _, d := range []struct {
		name       string
		value      Duration
		least, top time.Duration
	}{
		{"sandbox.owner_timeout", c.Sandbox.OwnerTimeout, time.Second, runtime.LongestTimeout},
		{"sandbox.max_wait", c.Sandbox.MaxWait, time.Second, runtime.LongestTimeout},
		{"shutdown_grace", c.ShutdownGrace, 0, 10 * time.Minute},
		{"gateway.approval_timeout", c.Gateway.ApprovalTimeout, time.Second, time.Hour},
		{"audit.retention", c.Audit.Retention, time.Hour, 36_500 * day},
		{"sandbox.pool.max_age", c.Sandbox.Pool.MaxAge, leastAge, 36_500 * day},
		{"sandbox.lasting.idle_stop", c.Sandbox.Lasting.IdleStop, time.Minute, 36_500 * day},
		{"sandbox.lasting.idle_remove", c.Sandbox.Lasting.IdleRemove, time.Minute, 36_500 * day},
	} {
		zero := []string{"sandbox.max_wait", "audit.retention", "sandbox.lasting.idle_stop", "sandbox.lasting.idle_remove"}
		if d.value == 0 && slices.Contains(zero, d.name) {
			continue // for ever, or never
		}
		if t := time.Duration(d.value); t < d.least || t > d.top {
			return c.wrong(d.name, "%s is out of range", d.value).WithHint("use %s to %s", Duration(d.least), Duration(d.top))
		}
	}
	return nil
}

func (c *Config) checkLimits() error {
	if err := c.Bounds().Check(); err != nil {
		e := cove.Errorf(cove.InvalidArgument, "sandbox.default_limits and sandbox.max_limits: %w", err)
		return e.WithHint("%s", cove.ErrorHint(err))
	}
	if _, err := c.Bounds().Resolve(runtime.Runtime{}, c.Sandbox.Lasting.Limits.limits()); err != nil {
		e := cove.Errorf(cove.InvalidArgument, "sandbox.lasting.limits and sandbox.max_limits: %w", err)
		return e.WithHint("%s", cove.ErrorHint(err))
	}
	return nil
}
