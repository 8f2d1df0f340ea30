package runtime

var ruby = Runtime{
	Name: "ruby", Aliases: []string{"rb"}, File: "main.rb",
	Command: []string{"ruby", "main.rb"}, Probe: []string{"ruby", "--version"},
	Package: "ruby", Image: "ruby:3.4-slim",
}
