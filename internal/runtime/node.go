package runtime

var node = Runtime{
	Name: "node", Aliases: []string{"javascript", "js", "nodejs"}, File: "main.js",
	Command: []string{"node", "main.js"}, Probe: []string{"node", "--version"},
	Parked:  32 << 10,
	Package: "nodejs", Image: "node:24-slim",
}
