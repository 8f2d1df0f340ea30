package devcontainer

import (
	"encoding/json"
	"regexp"
)

// removed are properties that a written file does not have.
var removed = map[string]string{
	"initializeCommand": never["initializeCommand"],
	"appPort":           "a container without a network publishes no port; forwardPorts works",
	"privileged":        widening["privileged"],
	"capAdd":            "root inside has what package managers need, and no more; --debuggers has debuggers work without",
	"securityOpt":       widening["securityOpt"],
}

// keptArgs are options of "docker run" that open no way to this machine, a network or other containers.
var keptArgs = []string{"--init", "--rm", "--read-only", "--name", "--hostname", "-h", "--label", "-l", "--shm-size",
	"--tmpfs", "--ulimit", "--user", "-u", "--workdir", "-w", "--stop-signal", "--stop-timeout", "--memory-swap",
	"--memory-reservation", "--cpuset-cpus", "--cpu-shares", "-c", "--platform", "--entrypoint", "--env", "-e",
	"--add-host", "--health-cmd", "--health-interval", "--health-retries", "--health-start-period", "--health-timeout",
	"--no-healthcheck"}

var (
	// hostVariable is a variable of the host in a text, with its name and its default.
	hostVariable = regexp.MustCompile(`\$\{(?:localEnv|env):([^}]*)\}`)
	// ofCheckout is the directory of the checkout, or one below it.
	ofCheckout = regexp.MustCompile(`^\$\{localWorkspaceFolder\}(/([^./][^/]*|\.[^./][^/]*))*$`)
)

// OfImage returns the devcontainer.json of an image alone.
func OfImage(name string) File {
	text, _ := json.Marshal(map[string]string{"image": name}) // strings always marshal
	return File{OwnFile, text}
}
