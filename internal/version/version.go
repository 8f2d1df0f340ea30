// Package version holds the version of this build.
package version

// Version is set by the linker; "dev" in plain builds.
var Version = "dev"
