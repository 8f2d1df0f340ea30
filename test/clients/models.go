package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
)

// anthropicProgram asks a model as the SDK does by itself: its own address, the
// key from the environment. It prints each event of the stream with its text.
func anthropicProgram(ctx context.Context, _ []string) error {
	client := anthropic.NewClient()
	stream := client.Messages.NewStreaming(ctx, anthropic.MessageNewParams{
		Model: anthropic.ModelClaudeHaiku5_5, MaxTokens: 100,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("Hello?"))},
	})
	var whole anthropic.Message
	for stream.Next() {
		event := stream.Current()
		if err := whole.Accumulate(event); err != nil {
			return err
		}
		fmt.Println(event.Type, event.Delta.Text)
	}
	if err := stream.Err(); err != nil {
		return err
	}
	fmt.Println("tokens", whole.Usage.OutputTokens, whole.StopReason)

	// What may not be asked is an error of the SDK's own, with the reason.
	_, err := client.Messages.Batches.List(ctx, anthropic.MessageBatchListParams{})
	var refused *anthropic.Error
	if errors.As(err, &refused) {
		fmt.Println("batches", refused.StatusCode, strings.Contains(refused.RawJSON(), "cove "))
	}
	return nil
}

// openaiProgram does the same with both APIs of the other SDK.
func openaiProgram(ctx context.Context, _ []string) error {
	client := openai.NewClient()
	stream := client.Chat.Completions.NewStreaming(ctx, openai.ChatCompletionNewParams{
		Model:    openai.ChatModelGPT4o,
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Hello?")},
	})
	for stream.Next() {
		for _, choice := range stream.Current().Choices {
			fmt.Println("chunk", choice.Delta.Content)
		}
	}
	if err := stream.Err(); err != nil {
		return err
	}
	answer := client.Responses.NewStreaming(ctx, responses.ResponseNewParams{
		Model: openai.ChatModelGPT4o, Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("Hello?")},
	})
	for answer.Next() {
		fmt.Println(answer.Current().Type, answer.Current().Delta)
	}
	if err := answer.Err(); err != nil {
		return err
	}
	_, err := client.Files.List(ctx, openai.FileListParams{})
	var refused *openai.Error
	if errors.As(err, &refused) {
		fmt.Println("files", refused.StatusCode, strings.Contains(refused.Message, "cove "))
	}
	return nil
}
