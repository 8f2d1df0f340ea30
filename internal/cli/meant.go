package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// meant maps words of other programs, parted by blanks, to a text that says what to type in their place.
var meant = []struct{ words, typed string }{
	{"rm delete remove del erase", "cove destroy SANDBOX"},
	{"gc clean cleanup", "cove prune"},
	{"create make add up", "cove new"},
	{"ssh sh bash enter connect console open", "cove attach SANDBOX"},
	{"sandboxes", "cove list"},
	{"show inspect describe", "cove info SANDBOX"},
	{"cp copy scp rsync", "tar c FILE | cove exec SANDBOX -- tar x, or the other way round"},
	{"top stats usage", "cove info SANDBOX, or cove ps"},
	{"jobs executions history", "cove ps -a"},
	{"tasks sessions conversations", "cove runs list"},
	{"end interrupt cancel abort", "cove kill ID, or cove stop SANDBOX"},
	{"down halt shutdown suspend", "cove stop SANDBOX"},
	{"restart reboot", "cove stop SANDBOX, and then cove start SANDBOX"},
	{"unpause continue thaw", "cove resume SANDBOX"},
	{"freeze", "cove pause SANDBOX"},
	{"mv", "cove rename SANDBOX NAME"},
	{"clone checkout worktree", "cove new OWNER/REPO"},
	{"changes review", "cove diff SANDBOX"},
	{"merge pull fetch", "cove apply SANDBOX, or git fetch cove::SANDBOX"},
	{"daemon", "cove serve, or cove server start"},
	{"images", "cove image list"},
	{"commit", "cove sandbox commit SANDBOX IMAGE, or git commit in the sandbox"},
	{"docker podman container containers", "cove run CODE --engine docker, or cove new REPO --engine docker"},
	{"python python3 node", "cove run FILE"},
	{"allow deny", "cove policy allow SANDBOX HOST, or cove policy deny SANDBOX HOST"},
	{"events trace", "cove network log -f, or cove audit"},
	{"languages", "cove runtimes"},
	{"install", "cove agents install AGENT"},
	{"init quickstart", "cove doctor, and then cove run or cove new: nothing has to be set up"},
	{"login logout auth", "nothing: keys come from the environment, such as ANTHROPIC_API_KEY; see docs/credentials.md"},
	{"check diagnose", "cove doctor"},
}

// unknownCommand refuses a word that is no command, and says what to type: by the word's meaning, else by its letters.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if typed := meantBy(args[0]); typed != "" {
		return ui.NoCommand(cmd, args[0]).WithHint("type %s", typed)
	}
	return ui.UnknownCommand(cmd, args)
}

func meantBy(word string) string {
	for _, m := range meant {
		if slices.Contains(strings.Fields(m.words), strings.ToLower(word)) {
			return m.typed
		}
	}
	return ""
}
