//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cove-sandbox/cove/api"
)

// measure is one row of the table of the network.
type measure struct {
	name   string
	ask    job
	target float64 // of Cove's; 0 if there is none
	least  bool    // the target is a minimum
	added  bool    // what counts is what is added to the way without anybody between
}

// measures are taken in each round, of everybody in turn.
var measures = []measure{
	{name: "HTTP/1.1: requests/s", ask: job{Do: doRate, Protocol: "http/1.1", Seconds: 1}, target: 6000, least: true},
	{name: "HTTP/2: requests/s", ask: job{Do: doRate, Protocol: "h2", Seconds: 1}},
	{name: "HTTP/1.1, reused connection: ms", ask: job{Do: doReused, Protocol: "http/1.1", Count: 400},
		target: 0.3, added: true},
	{name: "HTTP/2, reused connection: ms", ask: job{Do: doReused, Protocol: "h2", Count: 400}, target: 0.3, added: true},
	{name: "HTTP/1.1, new host: ms", ask: job{Do: doNew, Protocol: "http/1.1", Count: 40}, target: 1.5, added: true},
	{name: "HTTP/2, new host: ms", ask: job{Do: doNew, Protocol: "h2", Count: 40}, target: 1.5, added: true},
	{name: "WebSocket, echo of 1 KiB: ms", ask: job{Do: doWebSocket, Protocol: "http/1.1", Count: 400}, added: true},
	{name: "event stream, first event: ms", ask: job{Do: doEvents, Protocol: "h2", Count: 40}, added: true},
}

// cpu is the row of the processor time that it took; empty if that is not measured.
func (m measure) cpu() string {
	switch m.ask.Do {
	case doRate:
		return strings.Replace(m.name, "requests/s", "processor, µs a request", 1)
	case doNew:
		return strings.Replace(m.name, ", new host: ms", ": processor, µs a new host", 1)
	}
	return ""
}

// Rows that are not measured like the others.
const (
	rowIdle   = "100 sandboxes × 10 idle connections to 1 host: MiB"
	rowSpread = "100 sandboxes × 10 idle connections to 10 hosts: MiB"
	rowSetUp  = "setting up a sandbox's network: ms"
)

const (
	idleSandboxes, idleConnections = 100, 10
	targetIdleMiB, targetSetUpMS   = 80, 1
)

// between is who stands between a client and the origin.
type between struct {
	name  string
	why   string                 // not empty: why it is not measured
	pid   int                    // of the process that has a processor for itself; 0 if there is none
	route func(job) (job, error) // tells a job how to get there
	load  func(ctx context.Context, jobs []job) ([]took, error)
	// start starts another one, for its memory; nil where that is not measured.
	start func() (*started, error)
}

// started is a process that is for clients on loopback.
type started struct {
	*process
	ways func(n int) ([]func(job) job, error) // as many sandboxes, where it knows of such
}

const (
	direct       = "direct"
	directInside = "direct, in a sandbox"
)

// network measures ways to an origin on this machine's loopback.
type network struct {
	dir     string
	files   pair
	origin  origin
	setup   gatewaySetup
	all     []between
	stops   []func() error
	only    string                  // rows whose name contains it
	samples map[[2]string][]float64 // by row and name
}

func newNetwork(ctx context.Context, dir string, a asked) (n *network, err error) {
	n = &network{dir: filepath.Join(dir, "network"), only: a.row, samples: map[[2]string][]float64{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	if err := os.Mkdir(n.dir, 0o755); err != nil {
		return n, err
	}
	if n.files, err = newPair(n.dir); err != nil {
		return n, err
	}
	p, err := startRole(otherCore, "origin", n.files, &n.origin)
	if err != nil {
		return n, err
	}
	n.stops = append(n.stops, p.stop)
	n.setup = gatewaySetup{Dir: filepath.Join(n.dir, "ways"), Roots: n.files.Authority, Origin: n.origin}
	var alone origin
	if p, err = startRole(measuredCore, "origin", n.files, &alone); err != nil {
		return n, err
	}
	n.stops = append(n.stops, p.stop)
	n.all = []between{{name: direct, load: runLoad, route: func(j job) (job, error) {
		j.To, j.Port, j.Roots = alone.Address, alone.port(), n.files.Authority
		return j, nil
	}}}
	inside, err := n.inside(ctx)
	if err != nil {
		return n, fmt.Errorf("%s: %w", coveInside, err)
	}
	n.all = append(n.all, inside...)
	for _, b := range []between{{name: coveLoopback, start: n.gateway}, {name: "Go reverse proxy", start: n.reverse},
		{name: "mitmproxy", start: n.mitmproxy}} {
		if a.only != "" && b.name != coveLoopback && !strings.Contains(strings.ToLower(b.name), a.only) {
			b.why = "not asked for"
			n.all = append(n.all, b)
		} else if err := n.add(b); err != nil {
			return n, fmt.Errorf("%s: %w", b.name, err)
		}
	}
	return n, nil
}

// add starts one that is for clients on loopback.
func (n *network) add(b between) error {
	s, err := b.start()
	if errors.Is(err, exec.ErrNotFound) {
		b.why = "not installed"
	} else if err != nil {
		return err
	} else {
		n.stops = append(n.stops, s.stop)
		b.pid, b.load = s.cmd.Process.Pid, runLoad
		// Each job is another sandbox's: there is a limit to new names of one.
		b.route = func(j job) (job, error) {
			ways, err := s.ways(1)
			if err != nil {
				return j, err
			}
			return ways[0](j), nil
		}
	}
	n.all = append(n.all, b)
	return nil
}

func (n *network) close() (err error) {
	for _, stop := range slices.Backward(n.stops) {
		err = errors.Join(err, stop())
	}
	return err
}

// runLoad does jobs in a process beside the origin.
func runLoad(_ context.Context, jobs []job) ([]took, error) {
	var all []took
	p, err := startRole(otherCore, "load", jobs, &all)
	if err != nil {
		return nil, err
	}
	return all, errors.Join(failures(all), p.stop())
}

func failures(all []took) (err error) {
	for _, t := range all {
		if t.Failure != "" {
			err = errors.Join(err, errors.New(t.Failure))
		}
	}
	return err
}

const (
	coveInside   = "cove, in a sandbox"
	coveLoopback = "cove, on loopback"
)

// inside are processes in sandboxes: one that has its origin beside it, in the same sandbox, so that nobody is between;
// and how Cove is used, one that knows of no proxy, and the server that has its gateway.
func (n *network) inside(ctx context.Context) ([]between, error) {
	program := filepath.Join(n.dir, "load")
	if err := copyProgram(program); err != nil {
		return nil, err
	}
	s, err := startServer(ctx, serving{dir: n.dir, core: measuredCore}, "COVE_GATEWAY_RESOLVER="+n.origin.Names,
		"COVE_GATEWAY_EXTRA_CAS="+n.files.Authority,
		"COVE_GATEWAY_PRIVATE_CIDRS=127.0.0.1/32", fmt.Sprint("COVE_GATEWAY_RATE_LIMIT_PER_SECOND=", endless),
		fmt.Sprint("COVE_GATEWAY_RATE_LIMIT_BURST=", endless),
		"COVE_SANDBOX_ALLOWED_WORKDIR_ROOTS="+n.dir, "COVE_SANDBOX_CGROUP_PARENT=cove-bench-network")
	if err != nil {
		return nil, err
	}
	n.stops = append(n.stops, s.close)
	in := func(name string, pid int, role string) between {
		return between{name: name, pid: pid, route: func(j job) (job, error) { return j, nil },
			load: func(ctx context.Context, jobs []job) ([]took, error) {
				setup, err := json.Marshal(jobs)
				if err != nil {
					return nil, err
				}
				e, err := s.client.Execute(ctx, api.ExecuteRequest{
					Language: "sh", Code: "exec " + strings.Join(onCore(otherCore, "/bench/load", "role", role, `"$1"`), " "),
					Args:    []string{string(setup)},
					Timeout: 60, Spec: api.Spec{Limits: &api.Limits{CPUs: 2, PIDs: 100, MemoryMB: 512, StdoutKB: 1024},
						Mounts: []api.Mount{{Source: program, Target: "/bench/load", ReadOnly: true}}},
					Permissions: &api.Permissions{Network: &api.NetworkPermission{Enabled: true,
						GatewayPolicy: api.GatewayPolicy{Allow: []string{n.origin.allowed()}}}},
				})
				if err != nil {
					return nil, err
				}
				var all []took
				if err := json.Unmarshal([]byte(e.Output), &all); err != nil {
					return nil, fmt.Errorf("it said %q and %q: %w", e.Output, e.Stderr, err)
				}
				return all, failures(all)
			}}
	}
	return []between{in(directInside, 0, "alone"), in(coveInside, s.pid(), "load")}, nil
}

// copyProgram puts this program where a sandbox can be shown it.
func copyProgram(to string) error {
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer from.Close()
	f, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}

// gateway starts Cove's as others are used: clients are told of a proxy.
func (n *network) gateway() (*started, error) {
	p, err := startRole(measuredCore, "gateway", n.setup, new(string))
	if err != nil {
		return nil, err
	}
	return &started{p, func(count int) (ways []func(job) job, err error) {
		if _, err := fmt.Fprintln(p.in, count); err != nil {
			return nil, err
		}
		var all []opened
		err = p.answer(&all)
		for _, o := range all {
			ways = append(ways, func(j job) job { j.Proxy, j.Roots = o.Proxy, o.Roots; return j })
			n.sample(rowSetUp, coveLoopback, o.MS)
		}
		return ways, err
	}}, nil
}

// same is for those who treat all clients alike.
func same(route func(job) job) func(int) ([]func(job) job, error) {
	return func(n int) ([]func(job) job, error) { return slices.Repeat([]func(job) job{route}, n), nil }
}

// reverse starts a reverse proxy, which clients take for the origin.
func (n *network) reverse() (*started, error) {
	var address string
	p, err := startRole(measuredCore, "reverse", reverseSetup{n.files, n.origin.Address}, &address,
		"SSL_CERT_FILE="+n.files.Authority)
	if err != nil {
		return nil, err
	}
	return &started{p, same(func(j job) job { j.To, j.Roots = address, n.files.Authority; return j })}, nil
}

// mitmproxy starts mitmdump. It is told the address of the origin, and looks no name up.
func (n *network) mitmproxy() (*started, error) {
	program, err := exec.LookPath("mitmdump")
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := ln.Addr().(*net.TCPAddr)
	ln.Close()
	home := filepath.Join(n.dir, "mitmproxy")
	p, err := start(onCore(measuredCore, program, "--quiet", "--listen-host", address.IP.String(), "--listen-port",
		strconv.Itoa(address.Port),
		"--set", "flow_detail=0", "--set", "confdir="+home, "--set", "ssl_verify_upstream_trusted_ca="+n.files.Authority))
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		c, err := net.Dial("tcp", address.String())
		if err == nil {
			c.Close()
			break
		}
		if time.Now().After(deadline) {
			return nil, errors.Join(fmt.Errorf("it does not listen: %w", err), p.stop())
		}
	}
	return &started{p, same(func(j job) job {
		j.Proxy, j.To, j.Roots = address.String(), n.origin.Address, filepath.Join(home, "mitmproxy-ca-cert.pem")
		return j
	})}, nil
}

func (n *network) sample(row, name string, values ...float64) {
	key := [2]string{row, name}
	n.samples[key] = append(n.samples[key], values...)
}

// play measures everybody in turn, in a few rounds, and then what is measured once.
func (n *network) play(ctx context.Context, c *coveUnderTest, rounds int) error {
	for range rounds {
		for _, m := range measures {
			for _, b := range n.all {
				if b.why != "" || !n.asked(m.name) && !n.asked(m.cpu()) {
					continue
				}
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if err := n.once(ctx, m, b); err != nil {
					return fmt.Errorf("%s: %s: %w", b.name, m.name, err)
				}
			}
		}
	}
	for _, b := range n.all {
		if b.why != "" || b.start == nil {
			continue
		}
		for row, do := range map[string]action{rowIdle: doIdle, rowSpread: doSpread} {
			if !n.asked(row) {
				continue
			}
			if err := n.idle(b, row, do); err != nil {
				return fmt.Errorf("%s: %s: %w", b.name, row, err)
			}
		}
	}
	if !n.asked(rowSetUp) {
		return nil
	}
	return n.setUp(ctx, c, 6*rounds)
}

func (n *network) asked(row string) bool { return strings.Contains(row, n.only) }

// once takes one measure of one of them.
func (n *network) once(ctx context.Context, m measure, b between) error {
	j := m.ask
	j.Port = n.origin.port()
	j, err := b.route(j)
	if err != nil {
		return err
	}
	before, err := cpuOf(b.pid)
	if err != nil {
		return err
	}
	all, err := b.load(ctx, []job{j})
	if err != nil {
		return err
	}
	after, err := cpuOf(b.pid)
	if err != nil {
		return err
	}
	if m.ask.Do == doRate {
		n.sample(m.name, b.name, all[0].Rate)
	} else {
		n.sample(m.name, b.name, all[0].MS...)
	}
	if b.pid != 0 && m.cpu() != "" {
		n.sample(m.cpu(), b.name, float64((after-before).Nanoseconds())/1e3/float64(all[0].Requests))
	}
	return nil
}

// idle measures what idle connections cost in memory.
func (n *network) idle(b between, row string, do action) error {
	s, err := b.start()
	if err != nil {
		return err
	}
	defer s.stop()
	pid := s.cmd.Process.Pid
	time.Sleep(time.Second)
	rest := residentMiB(pid)
	ways, err := s.ways(idleSandboxes)
	if err != nil {
		return err
	}
	var jobs []job
	for _, route := range ways {
		jobs = append(jobs, route(job{Do: do, Protocol: "http/1.1", Port: n.origin.port(), Count: idleConnections}))
	}
	var all []took
	p, err := startRole(otherCore, "load", jobs, &all)
	if err != nil {
		return err
	}
	defer p.stop()
	time.Sleep(time.Second)
	n.sample(row, b.name, residentMiB(pid)-rest)
	return failures(all)
}

// setUp measures what a network adds to an execution.
func (n *network) setUp(ctx context.Context, c *coveUnderTest, rounds int) error {
	results, err := (scenario{load: one, rounds: rounds, rest: 100 * time.Millisecond, contenders: []contender{
		{name: direct, run: c.execute("sh", "echo 1")},
		{name: coveInside, run: c.execute("sh", "echo 1", n.origin.allowed())},
	}}).play(ctx, "")
	for _, r := range results {
		if r.Failure != "" {
			err = errors.Join(err, fmt.Errorf("%s: %s", r.Contender, r.Failure))
		}
		n.sample(rowSetUp, r.Contender, r.Samples...)
	}
	return err
}
