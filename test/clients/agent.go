package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
)

// agentProgram is the loop of an agent, on an API of an SDK's: it calls what the model calls until the model calls
// nothing. Nothing runs: each tool answers with what it was given. It prints what it sees, and the status of an error.
//
//	agent messages|chat|responses whole|stream PROMPT
func agentProgram(ctx context.Context, args []string) error {
	apis := map[string]func(context.Context, bool, string) error{"messages": messagesAgent, "chat": chatAgent,
		"responses": responsesAgent}
	if len(args) != 3 || apis[args[0]] == nil {
		return errors.New("usage: agent messages|chat|responses whole|stream PROMPT")
	}
	err := apis[args[0]](ctx, args[1] == "stream", args[2])
	if e, ok := errors.AsType[*anthropic.Error](err); ok {
		fmt.Println("error", e.StatusCode, e.Response.Header.Get("Retry-After"), e.Type())
	}
	if e, ok := errors.AsType[*openai.Error](err); ok {
		fmt.Println("error", e.StatusCode, e.Response.Header.Get("Retry-After"), e.Message)
	}
	return err
}

var (
	command    = map[string]any{"command": map[string]any{"type": "string"}}
	parameters = map[string]any{"type": "object", "properties": command, "required": []string{"command"}}
)

func messagesAgent(ctx context.Context, stream bool, prompt string) error {
	client := anthropic.NewClient()
	ask := anthropic.MessageNewParams{Model: "scripted", MaxTokens: 1000,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(prompt))},
		Tools: []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{Name: "bash",
			InputSchema: anthropic.ToolInputSchemaParam{Properties: command, Required: []string{"command"}}}}}}
	for {
		said, err := func() (*anthropic.Message, error) {
			if !stream {
				return client.Messages.New(ctx, ask)
			}
			var whole anthropic.Message
			events := client.Messages.NewStreaming(ctx, ask)
			for events.Next() {
				if err := whole.Accumulate(events.Current()); err != nil {
					return nil, err
				}
			}
			return &whole, events.Err()
		}()
		if err != nil {
			return err
		}
		var results []anthropic.ContentBlockParamUnion
		for _, block := range said.Content {
			switch b := block.AsAny().(type) {
			case anthropic.ThinkingBlock:
				fmt.Println("thinks", b.Thinking)
			case anthropic.TextBlock:
				fmt.Println("says", b.Text)
			case anthropic.ToolUseBlock:
				fmt.Println("calls", b.Name, string(b.Input))
				results = append(results, anthropic.NewToolResultBlock(b.ID, string(b.Input), false))
			}
		}
		fmt.Println("tokens", said.Usage.InputTokens > 0, said.Usage.OutputTokens, said.StopReason)
		if len(results) == 0 {
			return nil
		}
		ask.Messages = append(ask.Messages, said.ToParam(), anthropic.NewUserMessage(results...))
	}
}

func chatAgent(ctx context.Context, stream bool, prompt string) error {
	client := openai.NewClient()
	ask := openai.ChatCompletionNewParams{Model: "scripted",
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(prompt)},
		Tools: []openai.ChatCompletionToolUnionParam{
			openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{Name: "bash", Parameters: parameters})}}
	for {
		said, err := func() (*openai.ChatCompletion, error) {
			if !stream {
				return client.Chat.Completions.New(ctx, ask)
			}
			ask.StreamOptions.IncludeUsage = openai.Bool(true)
			var whole openai.ChatCompletionAccumulator
			chunks := client.Chat.Completions.NewStreaming(ctx, ask)
			for chunks.Next() {
				if !whole.AddChunk(chunks.Current()) {
					return nil, errors.New("a chunk does not fit")
				}
			}
			return &whole.ChatCompletion, chunks.Err()
		}()
		if err != nil {
			return err
		}
		if len(said.Choices) != 1 {
			return fmt.Errorf("%d choices", len(said.Choices))
		}
		choice := said.Choices[0]
		if choice.Message.Content != "" {
			fmt.Println("says", choice.Message.Content)
		}
		ask.Messages = append(ask.Messages, choice.Message.ToParam())
		for _, c := range choice.Message.ToolCalls {
			fmt.Println("calls", c.Function.Name, c.Function.Arguments)
			ask.Messages = append(ask.Messages, openai.ToolMessage(c.Function.Arguments, c.ID))
		}
		fmt.Println("tokens", said.Usage.PromptTokens > 0, said.Usage.CompletionTokens, choice.FinishReason)
		if len(choice.Message.ToolCalls) == 0 {
			return nil
		}
	}
}

func responsesAgent(ctx context.Context, stream bool, prompt string) error {
	client := openai.NewClient()
	input := responses.ResponseInputParam{responses.ResponseInputItemParamOfMessage(prompt,
		responses.EasyInputMessageRoleUser)}
	tool := responses.FunctionToolParam{Name: "bash", Parameters: parameters, Strict: openai.Bool(true)}
	for {
		ask := responses.ResponseNewParams{Model: "scripted",
			Input: responses.ResponseNewParamsInputUnion{OfInputItemList: input},
			Tools: []responses.ToolUnionParam{{OfFunction: &tool}}}
		said, err := func() (*responses.Response, error) {
			if !stream {
				return client.Responses.New(ctx, ask)
			}
			var whole responses.Response
			events := client.Responses.NewStreaming(ctx, ask)
			for events.Next() {
				switch e := events.Current().AsAny().(type) {
				case responses.ResponseCompletedEvent:
					whole = e.Response
				case responses.ResponseFailedEvent:
					return nil, errors.New(e.Response.Error.Message)
				}
			}
			return &whole, events.Err()
		}()
		if err != nil {
			return err
		}
		var results responses.ResponseInputParam
		for _, item := range said.Output {
			switch i := item.AsAny().(type) {
			case responses.ResponseReasoningItem:
				fmt.Println("thinks", i.Summary[0].Text)
			case responses.ResponseOutputMessage:
				fmt.Println("says", i.Content[0].Text)
				input = append(input, responses.ResponseInputItemParamOfMessage(i.Content[0].Text,
					responses.EasyInputMessageRoleAssistant))
			case responses.ResponseFunctionToolCall:
				fmt.Println("calls", i.Name, i.Arguments)
				answer := responses.ResponseInputItemParamOfFunctionCallOutput(i.Arguments)
				answer.OfFunctionCallOutput.CallID = openai.String(i.CallID)
				input = append(input, responses.ResponseInputItemParamOfFunctionCall(i.Arguments, i.CallID, i.Name))
				results = append(results, answer)
			}
		}
		fmt.Println("tokens", said.Usage.InputTokens > 0, said.Usage.OutputTokens, said.Status)
		if len(results) == 0 {
			return nil
		}
		input = append(input, results...)
	}
}

// listProgram asks for what there is beside answers.
func listProgram(ctx context.Context, _ []string) error {
	claude := anthropic.NewClient()
	count, err := claude.Messages.CountTokens(ctx, anthropic.MessageCountTokensParams{Model: "scripted",
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("Hello?"))}})
	if err != nil {
		return err
	}
	fmt.Println("tokens", count.InputTokens > 0)
	its, err := claude.Models.List(ctx, anthropic.ModelListParams{})
	if err != nil {
		return err
	}
	gpt := openai.NewClient()
	others, err := gpt.Models.List(ctx)
	if err != nil {
		return err
	}
	fmt.Println("models", its.Data[0].ID, others.Data[0].ID)
	_, err = claude.Beta.Files.List(ctx, anthropic.BetaFileListParams{})
	if e, ok := errors.AsType[*anthropic.Error](err); !ok || e.StatusCode != http.StatusNotFound {
		return fmt.Errorf("files: %w", err)
	}
	return nil
}
