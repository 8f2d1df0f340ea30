package guest

import "context"

// MaxParked bounds what a parked reader is given, in bytes: a pipe takes it at once.
const MaxParked = 32 << 10

// ReleaseName is the name of the file that OpRelease writes before it puts it in its place.
const ReleaseName = ".cove-release"

// Park makes a named pipe at a path, as the sandbox's user. A program that reads it waits for Release.
func Park(ctx context.Context, c *Client, path string) error {
	return c.do(ctx, OpPark, Path{Path: path})
}

// Release puts a file in the place of the pipe that Park has made, and gives the pipe's reader the file's content, of
// at most MaxParked bytes, and its end. After an error the reader may have a part of it.
func Release(ctx context.Context, c *Client, path string, mode uint32, data []byte) error {
	_, err := c.call(ctx, nil, OpRelease, WriteFile{Path: path, Mode: mode}, data, nil, nil)
	return err
}
