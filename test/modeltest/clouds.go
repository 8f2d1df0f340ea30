package modeltest

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"net/http"
	"net/url"
	"strings"
)

// bedrock is Bedrock's InvokeModel with a model of Anthropic: Messages, whose path says the model and whether it is a
// stream, which is AWS's.
type bedrock struct{ messages }

const bedrockStream = "/invoke-with-response-stream"

func (b bedrock) read(r *http.Request, body []byte) (*asked, error) {
	a, err := b.messages.read(r, body)
	if err != nil {
		return nil, err
	}
	a.model = between(r.URL, "/model/", "/")
	a.stream, a.frames = strings.HasSuffix(r.URL.Path, bedrockStream), true
	return a, nil
}

func (bedrock) failure(_ int, message string) any { return map[string]any{"message": message} }

// vertex is Vertex AI's rawPredict with a model of Anthropic: Messages, whose path says the model and whether it is a
// stream.
type vertex struct{ messages }

const vertexStream = ":streamRawPredict"

func (v vertex) read(r *http.Request, body []byte) (*asked, error) {
	a, err := v.messages.read(r, body)
	if err != nil {
		return nil, err
	}
	a.model, a.stream = between(r.URL, "/models/", ":"), strings.HasSuffix(r.URL.Path, vertexStream)
	return a, nil
}

func between(u *url.URL, before, after string) string {
	_, rest, _ := strings.Cut(u.EscapedPath(), before)
	rest, _, _ = strings.Cut(rest, after)
	name, _ := url.PathUnescape(rest)
	return name
}

// frame is an event as a message of AWS's event streams.
func (e event) frame() []byte {
	payload := encode(map[string]any{"bytes": base64.StdEncoding.EncodeToString(encode(e.data)), "p": "abcdefgh"})
	return message(payload, ":event-type", "chunk", ":content-type", "application/json", ":message-type", "event")
}

// message encodes a message with headers, all of which are texts.
func message(payload []byte, headers ...string) []byte {
	const text = 7 // the type of a header
	var head []byte
	for i := 0; i < len(headers); i += 2 {
		head = append(append(head, byte(len(headers[i]))), headers[i]...)
		head = append(head, text)
		head = append(binary.BigEndian.AppendUint16(head, uint16(len(headers[i+1]))), headers[i+1]...)
	}
	out := binary.BigEndian.AppendUint32(nil, uint32(12+len(head)+len(payload)+4))
	out = binary.BigEndian.AppendUint32(out, uint32(len(head)))
	out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out))
	out = append(append(out, head...), payload...)
	return binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out))
}
