"""The host's end of the stream: connection, frames, requests and results."""
