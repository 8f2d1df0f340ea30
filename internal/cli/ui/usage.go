package ui

import (
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// usages is how the template of help names flagUsages. Cobra keeps the functions of templates for the whole process.
var usages = sync.OnceFunc(func() { cobra.AddTemplateFunc("flagUsages", flagUsages) })

// ShowFlags has the help of a command and of those below it show flags as flagUsages does.
func ShowFlags(root *cobra.Command) {
	usages()
	text := root.UsageTemplate()
	for _, flags := range []string{".LocalFlags", ".InheritedFlags"} {
		text = strings.ReplaceAll(text, flags+".FlagUsages", "flagUsages "+flags)
	}
	root.SetUsageTemplate(text)
}

// flagUsages describes flags as pflag does. Values that may be left out are --flag[=VALUE] here: pflag shows the
// value that stands for none.
func flagUsages(all *pflag.FlagSet) string {
	shown := pflag.NewFlagSet("", pflag.ContinueOnError)
	shown.SortFlags = false // all is visited in its order
	all.VisitAll(func(f *pflag.Flag) {
		if value, usage := pflag.UnquoteUsage(f); f.NoOptDefVal != "" && value != "" {
			optional := *f
			optional.Name, optional.Usage = f.Name+"[="+value+"]", usage
			optional.Value, optional.DefValue, optional.NoOptDefVal = new(none), "false", "true"
			f = &optional
		}
		shown.AddFlag(f)
	})
	return shown.FlagUsages()
}

// none is the value of a flag whose name says all about it; pflag shows none for a bool.
type none struct{}

func (*none) String() string   { return "false" }
func (*none) Set(string) error { return nil }
func (*none) Type() string     { return "bool" }
