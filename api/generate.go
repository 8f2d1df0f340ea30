package api

import "encoding/json"

// GenerateRequest asks a model for a single answer, without an agent, tools or a sandbox: POST /generate.
type GenerateRequest struct {
	Prompt       string          `json:"prompt" doc:"What is to be answered, in words" example:"Write a haiku about sandboxes."`
	Files        []File          `json:"files,omitempty" doc:"Texts that belong to the prompt, at most 4 MiB with it; the model sees their paths"`
	Instructions string          `json:"instructions,omitempty" doc:"What the model is told before the prompt; the profile's when absent"`
	Model        string          `json:"model,omitempty" doc:"The profile's when absent, else the first that the provider lists"`
	Provider     string          `json:"provider,omitempty" doc:"The profile's when absent, else the first whose key is there" example:"anthropic"`
	Schema       json.RawMessage `json:"schema,omitempty" doc:"A JSON Schema that the answer is valid by"`
	MaxTokens    int             `json:"max_tokens,omitempty" minimum:"1" doc:"Of one answer of the model, which is continued when it is cut off; the provider's own limit when absent"`
	Budget       *ModelBudget    `json:"budget,omitempty"`
	Timeout      Seconds         `json:"timeout,omitempty" doc:"Ten minutes when absent, at most an hour"`
	Profile      string          `json:"profile,omitempty" doc:"Name of a profile of the server; what the request says itself wins"`
	Stream       bool            `json:"stream,omitempty" doc:"Answer with server-sent events, as the model answers"`
}

// Generated is a model's single answer.
type Generated struct {
	ID       string          `json:"id" doc:"Of the execution that it is recorded as"`
	Status   string          `json:"status" enum:"succeeded,failed,interrupted,limit" doc:"failed: the model refuses, or its answer is not valid by the schema; limit: LimitHit says which"`
	Text     string          `json:"text" doc:"The answer, as far as there is one"`
	Data     json.RawMessage `json:"data,omitempty" doc:"With a schema: the answer, valid by it"`
	Model    string          `json:"model,omitempty" doc:"That has answered"`
	Provider string          `json:"provider"`
	Usage    AgentUsage      `json:"usage"`
	LimitHit string          `json:"limit_hit,omitempty" enum:"timeout,budget"`
	Timeout  float64         `json:"timeout" doc:"In force, in seconds"`
	Error    *Error          `json:"error,omitempty" doc:"Why it has not succeeded"`
}
