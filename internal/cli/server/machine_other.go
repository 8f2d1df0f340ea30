//go:build !linux

package server

import (
	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/internal/cli/session"
)

func serveCommand(*session.Session) *cobra.Command { return session.OnLinux("serve") }

func doctorCommand(*session.Session) *cobra.Command { return session.OnLinux("doctor") }

func doctorProbeCommand(*session.Session) *cobra.Command { return session.OnLinux("doctor-probe") }

func imageCommand(*session.Session) *cobra.Command { return session.OnLinux("image") }
