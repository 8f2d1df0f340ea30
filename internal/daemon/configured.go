package daemon

import (
	"context"
	"crypto/x509"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/config"
	"github.com/cove-sandbox/cove/internal/egress/ca"
	"github.com/cove-sandbox/cove/internal/egress/credential"
	"github.com/cove-sandbox/cove/internal/egress/github"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
	"github.com/cove-sandbox/cove/internal/egress/registry"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/gateway"
	"github.com/cove-sandbox/cove/internal/git/inspect"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/internal/packages"
	"github.com/cove-sandbox/cove/internal/packages/cache"
)

// files are the files that the configuration names. Each is read at every use, and parsed where it has changed.
type files struct {
	cfg         *config.Config
	credentials reading[credential.Credential]
	providers   reading[model.Provider]
}

// Profiles implements fit.Configuration.
func (f *files) Profiles() ([]api.Profile, error) { return Profiles(f.cfg) }

// Credentials returns the credentials that the configuration describes.
func (f *files) Credentials() ([]credential.Credential, error) {
	return f.credentials.of("gateway.credentials", f.cfg.Gateway.Credentials, credential.Parse)
}

// Providers implements fit.Configuration: the providers of models.
func (f *files) Providers() ([]model.Provider, error) {
	if f.cfg.Gateway.Providers == "" {
		return model.Known()
	}
	return f.providers.of("gateway.providers", f.cfg.Gateway.Providers, model.Parse)
}

// Budget implements fit.Configuration.
func (f *files) Budget(who cove.Principal, b cove.Budget) cove.Budget {
	usual, _ := model.ParseBudget(f.cfg.Gateway.Budget) // Validate has accepted it, or it is empty
	return b.Over(usual).Over(f.cfg.Grants().Of(who).Models)
}

// Machine implements fit.Configuration.
func (f *files) Machine(ctx context.Context) (policy.Machine, error) {
	return registry.Machine(ctx, f.cfg.Gateway.PrivateCIDRs)
}

// places returns the files for the rules of users' host paths.
func (f *files) places() (hostpath.Files, error) {
	g := f.cfg.Gateway
	all := hostpath.Files{Keys: []string{f.cfg.TLS.Key}, Obeyed: append([]string{f.cfg.File, f.cfg.ProfilesFile(),
		g.Credentials, g.Providers, f.cfg.TLS.Cert, f.cfg.Guest}, g.ExtraCAs...)}
	unset := func(name string) bool { return name == "" }
	all.Keys, all.Obeyed = slices.DeleteFunc(all.Keys, unset), slices.DeleteFunc(all.Obeyed, unset)
	credentials, err := f.Credentials()
	if err != nil {
		return all, err
	}
	profiles, err := f.Profiles()
	if err != nil {
		return all, err
	}
	keys, programs := credential.Files(credentials)
	all.Keys, all.Obeyed = append(all.Keys, keys...), append(all.Obeyed, programs...)
	for _, p := range profiles {
		if p.TokenFile != nil {
			all.Tokens = append(all.Tokens, p.TokenFile.Path)
		}
	}
	return all, nil
}

// described returns what gateways need of them.
func (f *files) described() (d gateway.Described, err error) {
	if d.Credentials, err = f.Credentials(); err != nil {
		return d, err
	}
	d.Providers, err = f.Providers()
	return d, err
}

// gatewayOptions returns the options of every gateway by the configuration.
func gatewayOptions(f *files) (gateway.Options, error) {
	g := f.cfg.Gateway
	o := gateway.Options{Patience: g.ApprovalTimeout.Std(), Described: f.described, Clock: clock.Real()}
	var err error
	if o.Roots, o.Bundle, err = trust(g.ExtraCAs); err != nil {
		return o, err
	}
	if g.Budget != "" {
		if o.Budget, err = model.ParseBudget(g.Budget); err != nil {
			return o, err // Validate has accepted it
		}
	}
	if g.Resolver != "" {
		o.Dialer.Resolver = proxy.ResolverAt(g.Resolver)
	}
	if g.UpstreamProxy != "" {
		if o.Dialer.Upstream, err = url.Parse(g.UpstreamProxy); err != nil {
			return o, err // Validate has accepted it
		}
	}
	if o.GitHub, err = github.ServersNamed(g.GitHubHosts); err != nil {
		return o, err
	}
	o.Bandwidth = int64(g.Bandwidth * (1 << 20))
	o.Rate = gateway.Rate{PerSecond: g.RateLimit.PerSecond, Burst: g.RateLimit.Burst}
	if o.Machine, err = registry.Machine(context.Background(), g.PrivateCIDRs); err != nil {
		return o, err
	}
	o.Suites = func() []packages.Suite { return registry.New().Suites(context.Background()) }
	o.Sums = func() packages.Sums { return registry.New().Sums(context.Background()) }
	return o, nil
}

// packagesIn returns the cache of packages below a directory; nil where the configuration wants none.
func packagesIn(below string, g config.Gateway, log *slog.Logger) *cache.Cache {
	if g.PackagesMB == 0 {
		return nil
	}
	return cache.New(cache.Options{Dir: filepath.Join(below, "packages"), Most: int64(g.PackagesMB) << 20,
		Clock: clock.Real(), Log: log, Apart: !g.NPMPackages})
}

// packs returns the directory below another in which pushes are kept, and the
// inspector that has git look into them, in sandboxes of any engine that can.
func packs(below string, all *engine.Set, quotas inspect.Quotas, log *slog.Logger) (spool string, i *inspect.Inspector,
	err error) {
	spool = filepath.Join(below, "pushes")
	if err := os.MkdirAll(spool, 0o711); err != nil {
		return "", nil, cove.Errorf(cove.StorageFull, "the directory %s cannot be made: %w", spool, err)
	}
	inspect.Tidy(spool)
	return spool, inspect.New(inspect.Options{Engines: all, Dir: spool, Quotas: quotas, Log: log}), nil
}

// trust returns the certificate authorities for origins: the machine's roots and the files, as a pool and, for
// sandboxes, as PEM. No pool is the machine's roots. Those are read when they are needed.
func trust(files []string) (*x509.CertPool, func() []byte, error) {
	var extra []byte
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return nil, nil, cove.Errorf(cove.InvalidArgument, "gateway.extra_cas: %w", err)
		}
		if !x509.NewCertPool().AppendCertsFromPEM(data) {
			return nil, nil, cove.Errorf(cove.InvalidArgument, "gateway.extra_cas: %s has no certificate", f).
				WithHint("it must be PEM")
		}
		extra = append(extra, data...)
	}
	bundle := sync.OnceValue(func() []byte {
		roots, _ := ca.SystemRoots(os.Getenv) // on a machine without roots only extra ones vouch
		return append(roots, extra...)
	})
	if len(files) == 0 {
		return nil, bundle, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	pool.AppendCertsFromPEM(extra)
	return pool, bundle, nil
}
