"""Files of a recording: event format, writer, reader, archive."""
