package sandbox

import (
	"net/url"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove/internal/store"
)

// gitConfigPlace is the path, inside, of Cove's configuration of git. The user's configuration comes above it, and can
// change everything.
const gitConfigPlace = "/etc/cove/gitconfig"

// gitEnv leads git to the configuration. Git asks for no password: the gateway sets credentials.
var gitEnv = []string{"GIT_CONFIG_SYSTEM=" + gitConfigPlace, "GIT_TERMINAL_PROMPT=0"}

// forges are the hosts with SSH addresses that every sandbox rewrites to HTTPS.
var forges = []string{"github.com", "gitlab.com", "bitbucket.org", "codeberg.org"}

// gitConfig returns the configuration of git inside. It is pure.
func gitConfig(spec store.SandboxSpec) string {
	var b strings.Builder
	b.WriteString("# Made by Cove for this sandbox. What you configure yourself wins.\n[include]\n\tpath = " +
		"/etc/gitconfig\n")
	if g := spec.Git; g != nil && g.Name+g.Email != "" {
		b.WriteString("[user]\n")
		for _, v := range []struct{ key, value string }{{"name", g.Name}, {"email", g.Email}} {
			if v.value != "" {
				b.WriteString("\t" + v.key + " = " + gitValue(v.value) + "\n")
			}
		}
	}
	// The workspace's owner is the sandbox's user; other mounts' may not be.
	b.WriteString("[safe]\n\tdirectory = *\n[advice]\n\tdetachedHead = false\n")
	hosts := slices.Clone(forges)
	if spec.Repository != nil {
		if u, err := url.Parse(spec.Repository.Remote); err == nil && u.Scheme == "https" && u.Host != "" &&
			!slices.Contains(hosts, u.Host) {
			hosts = append(hosts, u.Host)
		}
	}
	for _, host := range hosts {
		name, _, _ := strings.Cut(host, ":")
		b.WriteString("[url " + gitValue("https://"+host+"/") + "]\n")
		for _, from := range []string{"git@" + name + ":", "ssh://git@" + name + "/", "git://" + name + "/"} {
			b.WriteString("\tinsteadOf = " + gitValue(from) + "\n")
		}
	}
	return b.String()
}

// gitValue quotes a value for git's configuration.
func gitValue(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`).Replace(s) + `"`
}
