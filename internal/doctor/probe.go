//go:build linux

package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
)

// probes are the trials of a child. They may change the child at will, since it ends afterwards.
var probes = map[string]func(args []string) (found string, err error){
	"nothing":             func([]string) (string, error) { return "", nil },
	"capability":          probeCapability,
	"nested":              probeNested,
	"proc":                probeProc,
	"overlay":             probeOverlay,
	"overlay-directories": probeOverlayDirectories,
	"overlay-idmapped":    probeOverlayIDMapped,
	"tmpfs-bytes":         probeTmpfsBytes,
	"tmpfs-inodes":        probeTmpfsInodes,
	"mount-api":           probeMountAPI,
	"seccomp":             probeSeccomp,
	"wait":                probeWait,
	"memory":              probeMemory,
	"pids":                probePIDs,
	"cpu":                 probeCPU,
}

// RunProbe is the child's side of a check: the hidden subcommand of Options.Probe calls it and exits with its result.
func RunProbe(args []string) int {
	runtime.LockOSThread()
	if len(args) == 0 || probes[args[0]] == nil {
		fmt.Fprintln(os.Stderr, "this command is for \"cove doctor\" itself")
		return 2
	}
	found, err := probes[args[0]](args[1:])
	json.NewEncoder(os.Stdout).Encode(answerOf(found, err))
	return 0
}

func answerOf(found string, err error) answer {
	if err == nil {
		return answer{Found: found}
	}
	a := answer{Step: "probe", Error: err.Error()}
	if s, ok := errors.AsType[*stepError](err); ok {
		a.Step, a.Error = s.step, s.err.Error()
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		a.Errno = int(errno)
	}
	return a
}
