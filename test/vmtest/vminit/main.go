// Command vminit is PID 1 of a test VM: it brings up what a Linux machine with systemd has (file systems, control
// groups, loopback), runs the steps that the host sends, and powers off when there are no more.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/test/vmtest/protocol"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "vminit: only as the init of a test VM; see docs/testing.md")
		os.Exit(2)
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "vminit:", err)
	}
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

func run() error {
	if err := boot(); err != nil {
		return fmt.Errorf("boot: %w", err)
	}
	port, err := openPort()
	if err != nil {
		return err
	}
	defer port.Close()
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return err
	}
	return serve(port, unix.ByteSliceToString(name.Release[:]))
}

func serve(port io.ReadWriter, kernel string) error {
	out := json.NewEncoder(port)
	if err := out.Encode(protocol.Event{Kernel: kernel}); err != nil {
		return err
	}
	in := json.NewDecoder(bufio.NewReader(port))
	for {
		var step protocol.Step
		if err := in.Decode(&step); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read a step: %w", err)
		}
		done := runStep(step, func(output []byte) { _ = out.Encode(protocol.Event{Output: output}) })
		if err := out.Encode(protocol.Event{Done: &done}); err != nil {
			return err
		}
	}
}
