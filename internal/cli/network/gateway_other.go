//go:build !linux

package network

import (
	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/internal/cli/session"
)

func gatewayCommand(*session.Session, Daemon) *cobra.Command {
	return session.OnLinux(&cobra.Command{Use: "gateway"})
}
