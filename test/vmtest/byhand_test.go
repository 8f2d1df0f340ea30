package vmtest

import (
	"cmp"
	"os"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/test/vmtest/protocol"
)

// TestByHand runs what the environment asks for; docs/testing.md lists it.
func TestByHand(t *testing.T) {
	pkg, script := os.Getenv("COVE_VM_PACKAGE"), os.Getenv("COVE_VM_SCRIPT")
	if pkg == "" && script == "" {
		t.Skip("runs a package or a script of your choice in a VM: set COVE_VM_PACKAGE or COVE_VM_SCRIPT")
	}
	var config Config
	if pkg != "" {
		config.Packages = []string{pkg}
	}
	config.Programs = strings.Fields(os.Getenv("COVE_VM_PROGRAMS"))
	as := protocol.Account(cmp.Or(os.Getenv("COVE_VM_AS"), string(protocol.Root)))
	vm := Boot(t, config)
	if script != "" {
		got := vm.Run(t, protocol.Step{Args: []string{"/bin/bash", "-c", script}, As: as})
		t.Logf("exit code %d, left behind %q, output:\n%s", got.ExitCode, got.Left, got.Output)
	}
	if pkg != "" {
		vm.Test(t, Test{Package: pkg, As: as, Args: strings.Fields(os.Getenv("COVE_VM_ARGS"))})
	}
}
