package ui

import (
	"fmt"
	"strings"
)

// BarText is one line of at most width columns: as much as fits of what is done, how far it is, a bar, and the sizes.
func BarText(doing string, done, total int64, width int) string {
	if total <= 0 {
		return fit(width, doing+" "+SizeText(done), doing)
	}
	const most, least = 30, 8
	done = min(done, total)
	head := fmt.Sprintf("%s %3d%%", doing, 100*done/total)
	sizes := fmt.Sprintf("%s of %s", SizeText(done), SizeText(total))
	if bar := min(most, width-len(head)-len(" [] ")-len(sizes)); bar >= least {
		full := int(int64(bar) * done / total)
		return fmt.Sprintf("%s [%s%s] %s", head, strings.Repeat("=", full), strings.Repeat(" ", bar-full), sizes)
	}
	return fit(width, head+" "+sizes, head, doing)
}

func fit(width int, texts ...string) string {
	for _, t := range texts {
		if len(t) <= width {
			return t
		}
	}
	return ""
}
