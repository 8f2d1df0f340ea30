package agent

import "github.com/cove-sandbox/cove/message"

// NewParser returns a parser for one run. before is the usage of the conversation's earlier runs, which some programs
// count again.
func (a Agent) NewParser(before message.AgentUsage) Parser {
	o := outcome{agent: a.Title}
	switch a.Output {
	case FormatClaude:
		return &claudeParser{outcome: o, answers: map[string]claudeUsage{}, tools: map[string]string{}}
	case FormatCodex:
		return &codexParser{outcome: o, before: before, called: map[string]bool{}}
	case FormatGemini:
		return &geminiParser{outcome: o, tools: map[string]string{}}
	case FormatOpencode:
		return &opencodeParser{outcome: o}
	case FormatMessages:
		return &messagesParser{outcome: o}
	}
	return &textParser{outcome: o}
}
