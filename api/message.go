package api

import "github.com/cove-sandbox/cove/message"

// Messages of agents, as the API streams them; see package message.
type (
	Message    = message.Message
	AgentUsage = message.AgentUsage
)

// MessageVersion is the version of the form of a Message.
const MessageVersion = message.Version

// Types of Message.
const (
	MessageThinking   = message.TypeThinking
	MessageToolCall   = message.TypeToolCall
	MessageToolResult = message.TypeToolResult
	MessageResult     = message.TypeResult
	MessageUsage      = message.TypeUsage
)
