package policy

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	git "github.com/cove-sandbox/cove/internal/git/policy"
)

// Document is one policy as written: one of the layers that Compile merges.
type Document struct {
	Source  string           // file name, or another name of its origin
	Mode    cove.NetworkMode // empty: the mode of earlier layers
	Replace bool             // drop what earlier layers allow, instead of extending it
	Presets []PresetUse
	Rules   []Rule
	// PullRequests grants pull requests and comments by GitHub's API, in addition to reading (see egress/github).
	PullRequests Grant
	// Repositories limit the use of GitHub's API, together with those of all other documents; nil says nothing of it.
	Repositories Repositories
	Git          []GitRule
	Unshared     bool // the sandbox neither reads nor fills the cache of packages that sandboxes share
}

// PresetUse is one preset that a document uses.
type PresetUse struct {
	Name string
	ID   string // place of its use
}

// Rule is one rule. It matches a request if each part does: one of its hosts or cidrs, ports, methods and paths.
type Rule struct {
	ID          string // stable: "policy.yaml:12", "preset github#3", "--allow example.com"
	Action      Action
	PassThrough bool
	Note        string // the author's reason; shown with the verdict

	hosts   []pattern
	cidrs   []netip.Prefix
	ports   []portRange // nil: 80 and 443 for a rule that allows or asks, all for one that denies
	methods []string    // nil: all
	paths   []glob      // nil: all
	comment string      // above it in YAML
}

// inner reports whether r looks at parts that only HTTP shows.
func (r *Rule) inner() bool { return r.methods != nil || r.paths != nil }

func (r *Rule) reach() []portRange {
	switch {
	case r.ports != nil:
		return r.ports
	case r.Action == Deny:
		return allPorts
	}
	return webPorts
}

func (r *Rule) check() error {
	bad := func(format string, args ...any) *cove.Error {
		return cove.Errorf(cove.InvalidArgument, format, args...)
	}
	switch {
	case len(r.hosts)+len(r.cidrs) == 0:
		return bad("a rule names hosts or cidrs")
	case len(r.hosts) > 0 && len(r.cidrs) > 0:
		return bad("a rule is about hosts or about cidrs").WithHint("make it two rules")
	case r.PassThrough && r.Action == Deny:
		return bad("what is denied does not pass through")
	case r.Action == Deny && len(r.cidrs) > 0 && r.inner():
		return bad(
			"addresses are denied whole: what a name leads to is known only after its methods and paths were judged").WithHint(
			"remove methods and paths")
	case r.PassThrough && r.inner():
		return bad("methods and paths cannot be seen in what passes through").WithHint("remove them, or pass_through")
	}
	for _, h := range r.hosts {
		name := strings.TrimPrefix(h.name, ".")
		if why := closedName(name); why != "" && r.Action != Deny {
			return bad("%s leads to %s, which no rule opens", h, why).
				WithHint("a service of this machine is %s with its port", HostService)
		}
		if name == HostService {
			if err := r.checkHostService(h); err != nil {
				return err
			}
		}
	}
	for _, c := range r.cidrs {
		if c != c.Masked() {
			return bad("%s has bits beyond its length", c).WithHint("did you mean %s?", c.Masked())
		}
		if c.Addr().Is4In6() {
			return bad("%s is IPv4 in another form", c).WithHint("write it as IPv4")
		}
		if len(c.Addr().Zone()) > 0 {
			return bad("%s has a zone", c)
		}
	}
	return nil
}

// checkHostService refuses a rule that opens all services of this machine: each port is named.
func (r *Rule) checkHostService(h pattern) error {
	if h.depth > 0 {
		return cove.Errorf(cove.InvalidArgument, "there is nothing below %s", HostService)
	}
	if r.Action == Deny {
		return nil
	}
	if r.ports == nil || slices.ContainsFunc(r.ports, func(p portRange) bool { return p.low != p.high }) {
		return cove.Errorf(cove.InvalidArgument, "services of this machine are opened one port at a time").WithHint(
			"ports: [5432]")
	}
	return nil
}

// Args returns a document with one rule for each target of a command line: HOST, *.HOST, ADDRESS or CIDR, each with
// :PORT or without. tcp:// before a target with a port passes any protocol through. Each rule's ID is source and the
// target ("--allow example.com"). Errors: InvalidArgument.
func Args(source string, action Action, targets ...string) (*Document, error) {
	d := &Document{Source: source}
	for _, target := range targets {
		r, err := parseTarget(target)
		if err == nil {
			r.Action, r.ID = action, source+" "+target
			r.PassThrough = r.PassThrough && action != Deny // it makes no difference to a denial
			err = r.check()
		}
		if err != nil {
			hint := "it takes HOST, *.HOST, ADDRESS or CIDR, :PORT if need be, and tcp:// for what is neither HTTP nor TLS"
			return nil, cove.Errorf(cove.InvalidArgument, "%s %s: %s", source, quote(target), bare(err)).
				WithHint("%s", cmp.Or(cove.ErrorHint(err), hint))
		}
		d.Rules = append(d.Rules, r)
	}
	return d, nil
}

// bare returns an error's message without its hint.
func bare(err error) string {
	return strings.TrimSuffix(err.Error(), " ("+cove.ErrorHint(err)+")")
}

func parseTarget(s string) (Rule, error) {
	var r Rule
	s, r.PassThrough = strings.CutPrefix(s, "tcp://")
	if scheme, rest, ok := strings.Cut(s, "://"); ok {
		rest, _, _ = strings.Cut(rest, "/")
		return Rule{}, cove.Errorf(cove.InvalidArgument, "a rule is about a host, not about a %s address", quote(scheme)).
			WithHint("write %s; a rule in a file of rules limits methods and paths, too", quote(rest))
	}
	host := s
	if i := strings.LastIndexByte(s, ':'); i > strings.LastIndexByte(s, ']') && strings.Count(s, ":") == 1 ||
		i > 0 && s[i-1] == ']' {
		ports, err := parsePorts(s[i+1:])
		if err != nil {
			return Rule{}, err
		}
		host, r.ports = s[:i], []portRange{ports}
	}
	if r.PassThrough && r.ports == nil {
		return Rule{}, cove.Errorf(cove.InvalidArgument, "tcp:// needs a port")
	}
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	}
	if c, err := parseCIDR(host); err == nil {
		r.cidrs = []netip.Prefix{c}
		return r, nil
	} else if strings.Contains(host, "/") {
		return Rule{}, err
	}
	p, err := parsePattern(host, 1)
	r.hosts = []pattern{p}
	return r, err
}

// parseCIDR reads ADDRESS/BITS, or an address by itself.
func parseCIDR(s string) (netip.Prefix, error) {
	if c, err := netip.ParsePrefix(s); err == nil {
		return c, nil
	}
	a, err := netip.ParseAddr(s) // which takes no slash
	if err != nil || a.Zone() != "" {
		return netip.Prefix{}, cove.Errorf(cove.InvalidArgument, "%s is not an address or range such as 192.0.2.0/24",
			quote(s))
	}
	return single(a.Unmap()), nil
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// Foreign refuses rules that only the machine's owner may write: for services of the machine, and for private addresses
// outside private. It is for documents from callers of the API. Errors: Forbidden.
func (d *Document) Foreign(private []netip.Prefix) error {
	for _, r := range d.Rules {
		if r.Action == Deny {
			continue
		}
		for _, h := range r.hosts {
			if h.name == HostService {
				return cove.Errorf(cove.Forbidden, "%s: only the owner of this machine may open its services", r.ID)
			}
		}
		for _, c := range r.cidrs {
			if special, ok := overlapsSpecial(c); ok && !slices.ContainsFunc(private, func(p netip.Prefix) bool {
				return within(p, c)
			}) {
				return cove.Errorf(cove.Forbidden, "%s: %s has %s addresses, which only the owner of this machine may open",
					r.ID, c, special)
			}
		}
	}
	return nil
}

// within reports whether outer contains all of inner.
func within(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

func overlapsSpecial(c netip.Prefix) (class string, ok bool) {
	for _, s := range specials {
		if s.net.Overlaps(c) {
			return s.class, true
		}
	}
	if c.Addr().Is6() && !within(globalV6, c) {
		return "not assigned", true
	}
	return "", false
}

func remedy(sandbox string, h Host, port uint16) string {
	if h.name != HostService && hasPort(webPorts, port) || port == 0 {
		return allowCommand(sandbox, h.String())
	}
	return allowCommand(sandbox, h.Authority(port))
}

func allowCommand(sandbox, target string) string {
	sandbox = cmp.Or(sandbox, "SANDBOX")
	return "cove policy allow " + sandbox + " " + target
}

func (r *Rule) setHost(h Host) {
	if a, ok := h.Addr(); ok {
		r.cidrs = []netip.Prefix{single(a)}
	} else {
		r.hosts = []pattern{{name: h.Name()}}
	}
}

// Exactly returns a rule that allows one method, or with an empty method every one, on paths of one host and port.
// Errors: InvalidArgument when rules cannot open the host.
func Exactly(id string, host Host, port uint16, method string, paths ...string) (Rule, error) {
	r := Rule{ID: id, Action: Allow, ports: []portRange{{port, port}}}
	if method != "" {
		r.methods = []string{method}
	}
	r.setHost(host)
	for _, p := range paths {
		g, err := parseGlob(p)
		if err != nil {
			return r, err
		}
		r.paths = append(r.paths, g)
	}
	return r, r.check()
}

// gitPaths are the paths that a git client requests, below the repository's own.
var gitPaths = []string{"/info/refs", "/git-upload-pack", "/git-receive-pack", "/info/lfs/objects/batch"}

// ForRepository returns the document of a sandbox that works on one repository: remote is its https URL, branch its own
// branch ("" for read-only), shared the refs that it sees in addition (git.ParseRefs; nil: the well-known branches, and
// tags). The document opens the paths that git needs of that repository, by both of its names, and nothing else of its
// host. pullRequests permits opening pull requests by GitHub's API; the API's host needs a rule in another document.
// Errors: InvalidArgument.
func ForRepository(source, remote, branch string, shared []string, pullRequests bool) (*Document, error) {
	r, err := ParseRemote(remote)
	if err != nil {
		return nil, err
	}
	if r.Below {
		return nil, cove.Errorf(cove.InvalidArgument, "%s is not one repository", r)
	}
	g := GitRule{ID: source, Remote: r, grants: map[string]Grant{}}
	add := func(to *[]git.Refs, s string) {
		refs, why := git.ParseRefs(s)
		*to = append(*to, refs)
		err = cmp.Or(err, objection(s, why))
	}
	if branch != "" {
		add(&g.own, branch)
	}
	for _, s := range shared {
		add(&g.fetch, s)
	}
	if err != nil {
		return nil, err
	}
	d := &Document{Source: source, Mode: cove.NetworkLimited, Git: []GitRule{g}}
	for _, method := range []string{"GET", "POST"} {
		var paths []string
		for _, name := range []string{r.Path, r.Path + ".git"} {
			for _, p := range gitPaths {
				paths = append(paths, name+p)
			}
		}
		rule, err := Exactly(source, r.Host, r.Port, method, paths...)
		if err != nil {
			return nil, err
		}
		d.Rules = append(d.Rules, rule)
	}
	if pullRequests {
		d.PullRequests = Granted
	}
	return d, nil
}

func objection(s, why string) error {
	if why == "" {
		return nil
	}
	return cove.Errorf(cove.InvalidArgument, "%s is refused: %s", quote(s), why)
}
