package session

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/devcontainer"
	"github.com/cove-sandbox/cove/internal/egress/ca"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/git/policy"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/internal/linux/seccomp"
)

// Confinement returns what a container of others is started with, and the filter of system calls. Its programs write
// into a directory of the host, as into a mount with --writable-git.
func Confinement(ctx context.Context, sess *Session, top string, debuggers bool) (c devcontainer.Confinement,
	filter []byte, err error) {
	cfg, err := sess.Config()
	if err != nil {
		return c, nil, err
	}
	rules := hostpath.Rules{Own: []string{cfg.Home, cfg.RunDir}}
	for _, f := range policy.Local {
		rules.Guarded = append(rules.Guarded, string(f))
	}
	policy := seccomp.For(seccomp.Processes{User: cove.RootUser, Shared: true, Debuggers: debuggers})
	oci, err := policy.OCI(seccomp.HostArch())
	if err != nil {
		return c, nil, err
	}
	filter, err = json.Marshal(oci)
	return devcontainer.Confinement{
		Seccomp: "seccomp.json",
		Label:   "cove.devcontainer=" + strings.ToLower(rand.Text()), // which no file of a repository can say
		Guards: func(below string) (map[string]bool, []string, error) {
			return rules.Guards(ctx, filepath.Join(top, below))
		},
		Env:  ca.Environment(ca.Bundle, ca.Certificate),
		Wait: gatewayWait(engine.DNSPort, ca.Bundle, ca.Certificate),
		Capabilities: []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
			"NET_BIND_SERVICE", "SYS_CHROOT"},
	}, append(filter, '\n'), err
}

// gatewayWait is a line of sh that waits until something answers DNS questions in a network namespace that had only
// loopback, and the authority's files are there. Where the image can, all programs are made to trust it.
func gatewayWait(dnsPort int, bundle, certificate string) string {
	return fmt.Sprintf(`n=0; until [ -s %s ] && case $(cat /proc/net/udp) in *:%04X\ *) ;; *) false ;; esac; do `+
		`n=$((n+1)); if [ $n -gt 60 ]; then echo "no gateway: run cove gateway attach" >&2; exit 1; fi; sleep 1; done; `+
		`if [ -w /usr/local/share/ca-certificates ] && command -v update-ca-certificates >/dev/null; then `+
		`cp %s /usr/local/share/ca-certificates/cove.crt && update-ca-certificates >/dev/null 2>&1; fi; true`,
		bundle, dnsPort, certificate)
}
