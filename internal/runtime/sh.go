package runtime

var sh = Runtime{
	Name: "sh", Aliases: []string{"shell"}, File: "main.sh",
	Command: []string{"sh", "main.sh"}, Probe: []string{"sh", "-c", "echo POSIX shell"},
	Parked:  32 << 10,
	Package: "dash", Image: "debian:stable-slim",
}
