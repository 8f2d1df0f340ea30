package api

// ConnectedLine is the line that "cove server connect" prints before it carries
// the bytes of a connection, which the server has accepted by then.
const ConnectedLine = "cove is connected\n"
